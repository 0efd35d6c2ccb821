"""`neuron-scheduler check` as it is typed: flags, output, exit codes."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from neuron_scheduler import __version__, cli
from tests.control_plane.server import free_port
from tests.support import wire_objects
from tests.support.beside import beside
from tests.support.listing_server import NODES, PODS, ListingServer, kubeconfig, listing, neuron_pod

Run = Callable[..., tuple[int, str, str]]
"""Exit code, stdout and stderr."""

ROOT = Path(__file__).parents[3]
TRN1 = {"aws.amazon.com/neuron": "16", "aws.amazon.com/neuroncore": "32"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return what runs the command in this process; it silences the log, which belongs to all tests."""

    def check(*arguments: str | Path) -> tuple[int, str, str]:
        try:
            code = cli.main(["check", *map(str, arguments)])
        finally:
            logging.disable(logging.NOTSET)
        return code, *capsys.readouterr()

    return check


def trn1(name: str) -> Any:
    """Return a trn1.32xlarge."""
    labels = {"node.kubernetes.io/instance-type": "trn1.32xlarge"}
    return wire_objects.node(name, metadata={"labels": labels}, status={"capacity": TRN1, "allocatable": TRN1})


def plugin() -> Any:
    """Return the DaemonSet of the device plugin."""
    meta = {"name": "neuron-device-plugin", "namespace": "kube-system"}
    template = {"spec": {"serviceAccountName": "neuron-device-plugin"}}
    return {"metadata": meta, "spec": {"template": template}, "status": {"numberReady": 1, "desiredNumberScheduled": 1}}


def config(folder: Path, server: ListingServer, **contexts: str) -> Path:
    """Write a kubeconfig for the server."""
    path = folder / "kubeconfig"
    path.write_text(kubeconfig(server.url, **contexts))
    return path


def test_a_cluster_before_the_installation(run: Run, tmp_path: Path) -> None:
    """Exit code 0, nothing on stderr, no colour in a pipe."""
    with beside(listing(lists={NODES: [trn1("a"), trn1("b")], "/apis/apps/v1/daemonsets": [plugin()]})) as server:
        code, out, err = run("--kubeconfig", config(tmp_path, server))
    assert (code, err) == (0, "")
    assert "  ok           trn1.32xlarge: 2 nodes with 16 devices and 32 cores each\n" in out
    assert "  note         neuron-scheduler is not installed\n" in out
    assert out.endswith("\nNothing needs action.\n")
    assert "\033" not in out


def test_a_finding_that_needs_action(run: Run, tmp_path: Path) -> None:
    """Exit code 1, and the JSON form says the same."""
    lists = {NODES: [trn1("a")], PODS: [neuron_pod("p", 2, on="a")]}
    with beside(listing(lists=lists)) as server:
        code, out, _ = run("--kubeconfig", config(tmp_path, server), "-o", "json")
    content = json.loads(out)
    assert (code, content["exitCode"], content["schemaVersion"], content["version"]) == (1, 1, 1, __version__)
    (finding,) = [finding for finding in content["findings"] if finding["code"] == "allocations-unreadable"]
    assert finding["subject"] == "allocations"
    assert finding["severity"] == "warning"
    assert finding["objects"] == ["default/p on a: no annotation names its ids"]


def test_other_names_and_another_context(run: Run, tmp_path: Path) -> None:
    """`--context` and each `--scheduler-name` have their effect; `--namespace`, a habit of kubectl, has none."""
    pods = [neuron_pod("p"), neuron_pod("q")]
    pods[1]["spec"]["schedulerName"] = "batch"
    with beside(listing(default=403)) as other, beside(listing(lists={NODES: [trn1("a")], PODS: pods})) as server:
        path = config(tmp_path, other, there=server.url)
        names = ("--scheduler-name=my-scheduler", "--scheduler-name=batch")
        _, out, _ = run("--kubeconfig", path, "--context=there", "-n", "mine", *names, "-ojson")
    content = json.loads(out)
    assert (content["server"], content["namespace"]) == (server.url, "kube-system")
    assert content["schedulerNames"] == ["my-scheduler", "batch"]
    assert "scheduler-names" in {finding["code"] for finding in content["findings"]}
    assert "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/my-scheduler" in server.requests


@pytest.mark.parametrize("flag", ["--master", "--server", "-s"])
def test_another_address(run: Run, flag: str, tmp_path: Path) -> None:
    """It takes the place of the kubeconfig's, under both of its names."""
    with beside(listing(default=403)) as other, beside(listing(lists={NODES: [trn1("a")]})) as server:
        _, out, _ = run("--kubeconfig", config(tmp_path, other), flag, server.url)
    assert "trn1.32xlarge: 1 node" in out


async def test_a_reader_that_stops_early(tmp_path: Path) -> None:
    """`check | true` ends without a traceback, with the exit code of the check."""
    async with listing(lists={NODES: [trn1("n")], "/apis/apps/v1/daemonsets": [plugin()]}) as server:
        program = f"{sys.executable} -m neuron_scheduler check --kubeconfig {config(tmp_path, server)} -o json"
        script = f"set -o pipefail; exec 3>&1; {{ {program}; echo $? >&3; }} | true"
        done = await anyio.run_process(["bash", "-c", script], check=False, cwd=ROOT)
    assert (done.stdout.decode(), done.stderr.decode()) == ("0\n", "")


def test_no_rights_at_all(run: Run, tmp_path: Path) -> None:
    """The report names what is missing; exit code 2."""
    with beside(listing(default=403)) as server:
        code, out, _ = run("--kubeconfig", config(tmp_path, server))
    assert code == 2
    assert "list nodes" in out
    assert "\n  error" not in out


def test_nobody_answers(run: Run, tmp_path: Path) -> None:
    """One sentence on stderr, which names who was asked, and exit code 2."""
    path = tmp_path / "kubeconfig"
    port = free_port()
    path.write_text(kubeconfig(f"http://127.0.0.1:{port}"))
    code, out, err = run("--kubeconfig", path, "-o", "json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("neuron-scheduler: nothing could be checked: ")
    assert f"cannot connect to 127.0.0.1:{port}: " in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--kubeconfig=/no/such"], "kubeconfig /no/such: it does not exist"),
        (
            ["--kubeconfig=KUBECONFIG", "--context=nowhere"],
            "Expected object with name nowhere in KUBECONFIG/contexts list",
        ),
        (["-o", "yaml"], "-o/--output: invalid choice: 'yaml'"),
        (["--kubeconfg=x"], "unknown flag --kubeconfg; did you mean --kubeconfig?"),
    ],
    ids=["no file", "no context", "no format", "no flag"],
)
def test_mistakes(run: Run, arguments: list[str], sentence: str, tmp_path: Path) -> None:
    """One sentence on stderr and exit code 2."""
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig("http://127.0.0.1:1"))
    code, out, err = run(*(argument.replace("KUBECONFIG", str(path)) for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert sentence.replace("KUBECONFIG", str(path)) in err


def test_help_says_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags, and what 0, 1 and 2 mean."""
    with pytest.raises(SystemExit, match="0"):
        cli.main(["check", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for flag in ("--kubeconfig", "--context", "--namespace", "--scheduler-name", "--output"):
        assert flag in text
    assert "Exit codes: 0: everything was checked, and nothing needs action; 1: " in text
