"""The names of pods as kubectl takes them, and an error that helps."""

import pytest

from neuron_scheduler.capture.capture import Capture
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.commands.pod_name import found, named
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.kube.objects.base import Malformed
from tests.support.builders import pod

PODS = (pod("train-0"), pod("train-1"), pod("train-0", namespace="ml"))


def capture() -> Capture:
    """Return a capture with a few pods."""
    return Capture(
        cluster=Cluster(),
        pods={each.key: each for each in PODS},
        waiting=PODS,
        ended=frozenset({"default/old"}),
        unreadable={"default/odd\x1b[2J": Malformed("Pod", "default/odd\x1b[2J", "no name", node_name="n")},
    )


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("train-0", ("", "train-0")),
        ("ml/train-0", ("ml", "train-0")),
        ("pod/train-0", ("", "train-0")),
        ("pods/x", ("", "x")),
        ("Po/x", ("", "x")),
    ],
)
def test_forms(text: str, want: tuple[str, str]) -> None:
    """A name, with its namespace, or with the type."""
    assert named(text) == want


@pytest.mark.parametrize("text", ["/", "a/", "/b", "a/b/c", "pod/a/b"])
def test_no_names(text: str) -> None:
    """Anything else is refused."""
    with pytest.raises(ConfigurationError, match="write NAME, NAMESPACE/NAME or pod/NAME"):
        named(text)


def test_found() -> None:
    """In the namespace of the arguments, or in its own."""
    assert found(capture(), "train-0", "default") is PODS[0]
    assert found(capture(), "pod/train-0", "ml") is PODS[2]
    assert found(capture(), "ml/train-0", "default") is PODS[2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("trian-1", "there is no pod default/trian-1, or it has ended; did you mean default/train-1"),
        ("elsewhere/train-1", "did you mean default/train-1?"),
        ("qqq", "there is no pod default/qqq, or it has ended$"),
        ("old", "pod default/old has ended"),
        ("odd\x1b[2J", r"pod default/odd\\x1b\[2J on node n cannot be read: no name"),
    ],
)
def test_not_found(text: str, says: str) -> None:
    """The error says what is like it, and what is known of it."""
    with pytest.raises(ConfigurationError, match=says):
        found(capture(), text, "default")
