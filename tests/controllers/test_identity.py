"""The holder identity names the pod, and is different for each process."""

import socket

import pytest

from neuron_scheduler.controllers.leader_elector import identity
from neuron_scheduler.telemetry.errors import ConfigurationError


def test_the_identity_names_the_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """POD_NAME comes first, as in the network of a node the hostname is the node's; each process has another."""
    monkeypatch.setenv("POD_NAME", "my-scheduler-7d9f-x2k4q")
    names = {identity() for _ in range(2)}
    assert {name.partition("_")[0] for name in names} == {"my-scheduler-7d9f-x2k4q"}
    assert len(names) == 2
    monkeypatch.setenv("POD_NAME", "")
    assert identity().partition("_")[0] == socket.gethostname()


@pytest.mark.parametrize(
    "name", ["a\nb", "x" * 254, "a" * 100_000, "p\u03cc\u03b4", "a\x01", " ", "bad\udcff", "a_b", "-a", "A"]
)
def test_an_identity_that_is_no_pods_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be in every Binding and in the log: one short line says what to do."""
    monkeypatch.setenv("POD_NAME", name)
    with pytest.raises(ConfigurationError, match="POD_NAME") as caught:
        identity()
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
