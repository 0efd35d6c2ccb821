"""kubectl's connection flags, with kubectl's names and meaning."""

import argparse
import re
import subprocess
from pathlib import Path

import attrs
import pytest

from neuron_scheduler.commands import arguments
from neuron_scheduler.kube.http.overrides import Overrides
from tests.support.kubectl import KUBECTL

OF_WRITERS_AND_LOGS = {
    "--add-dir-header",
    "--alsologtostderr",
    "--cache-dir",
    "--disable-compression",
    "--kuberc",
    "--log-backtrace-at",
    "--log-dir",
    "--log-file",
    "--log-file-max-size",
    "--log-flush-frequency",
    "--logtostderr",
    "--match-server-version",
    "--one-output",
    "--password",
    "--profile",
    "--profile-output",
    "--skip-headers",
    "--skip-log-headers",
    "--stderrthreshold",
    "--username",
    "--v",
    "--vmodule",
    "--warnings-as-errors",
    "--help",
}
"""kubectl's global flags that mean nothing here, or that a kubeconfig says better."""


def parsed(*words: str) -> argparse.Namespace:
    """Parse the shared arguments."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    arguments.add_cluster(parser)
    arguments.add_namespace(parser)
    return parser.parse_args(words)


def test_every_flag_reaches_the_connection() -> None:
    """None is read and forgotten."""
    words = [
        "--context=a", "--cluster=b", "--user=c", "--server=d", "--token=e", "--tls-server-name=f",
        "--certificate-authority=g", "--insecure-skip-tls-verify", "--client-certificate=h", "--client-key=i",
        "--as=j", "--as-uid=k", "--as-group=l", "--as-group=m", "--as-user-extra=n=o", "--proxy-url=p",
    ]  # fmt: skip
    overrides = arguments.overrides_of(parsed(*words))
    assert attrs.astuple(overrides) == (
        *("a", "b", "c", "d", "e", "f", "g"), True, *("h", "i", "j", "k"), ("l", "m"), ("n=o",), "p",
    )  # fmt: skip
    assert arguments.overrides_of(parsed()) == Overrides()


def test_the_flags_are_kubectls() -> None:
    """Those of `kubectl options`, except for those that have no meaning here; the short ones too."""
    options = subprocess.run([KUBECTL, "options"], capture_output=True, text=True, check=True).stdout
    theirs = dict(re.findall(r"^ *(?:(-\w), )?(--[\w-]+)=", options, re.MULTILINE))
    ours = {option for action in _actions() for option in action.option_strings}
    assert {flag for flag in re.findall(r"(--[\w-]+)=", options) if flag not in ours} <= OF_WRITERS_AND_LOGS
    assert {short for short in theirs if short} - {"-v"} <= ours


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
