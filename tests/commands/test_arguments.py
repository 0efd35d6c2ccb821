"""kubectl's connection flags, with kubectl's names and meaning."""

import argparse
import re
import subprocess
from pathlib import Path

import pytest

from neuron_scheduler.commands import arguments
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.kubectl import KUBECTL


def parsed(*words: str) -> argparse.Namespace:
    """Parse the shared arguments."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    arguments.add_cluster(parser)
    arguments.add_namespace(parser)
    return parser.parse_args(words)


def test_every_flag_reaches_the_connection() -> None:
    """None is read and forgotten."""
    words = ["--kubeconfig=k", "--context=a", "--server=d", "--token=e", "--as=j", "--as-group=l", "--as-group=m"]
    assert arguments.connection_arguments(parsed(*words)) == {
        "paths": "k",
        "master": "d",
        "context": "a",
        "token": "e",
        "acting_as": {"as": "j", "as-groups": ["l", "m"]},
    }
    with pytest.raises(ConfigurationError, match="--as-group needs --as"):
        arguments.connection_arguments(parsed("--as-group=l"))


def test_the_flags_are_kubectls() -> None:
    """Each has the name and the short form that `kubectl options` has, but for those of `--from` and `--ask`."""
    options = subprocess.run([KUBECTL, "options"], capture_output=True, text=True, check=True).stdout
    theirs = {long: short for short, long in re.findall(r"^ *(?:(-\w), )?(--[\w-]+)=", options, re.MULTILINE)}
    ours = {action.option_strings[-1]: action.option_strings[:-1] for action in _actions()}
    assert ours.keys() - theirs.keys() == {"--help", "--from", "--ask", "--config"}
    assert {long: short for long, short in ours.items() if long in theirs} == {
        long: [theirs[long]] if theirs[long] else [] for long in ours.keys() & theirs.keys()
    }


def _actions() -> list[argparse.Action]:
    parser = argparse.ArgumentParser()
    arguments.add_cluster(parser)
    arguments.add_namespace(parser)
    return parser._actions


def test_the_kubeconfig_is_kubectls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag, KUBECONFIG, the one in the home folder; a pod's own account only if there is none."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    assert arguments.kubeconfig_of(parsed()) is None
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{tmp_path}/one")
    assert arguments.kubeconfig_of(parsed()) is None
    (tmp_path / "one").write_text("")
    assert arguments.kubeconfig_of(parsed()) == f"{tmp_path}/none:{tmp_path}/one"
    monkeypatch.delenv("KUBECONFIG")
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("")
    assert arguments.kubeconfig_of(parsed()) == str(tmp_path / ".kube" / "config")
    assert arguments.kubeconfig_of(parsed("--kubeconfig=x")) == "x"


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30.0), ("5", 5.0), ("0", 0.0), ("1m", 60.0)])
def test_the_timeout_is_written_as_for_kubectl(text: str, seconds: float) -> None:
    """A number needs no unit; 0 is none."""
    assert parsed(f"--request-timeout={text}").request_timeout == seconds
