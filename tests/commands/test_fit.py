"""`fit` from files: sizes, workloads, purchases, forms, exit codes, and one sentence for every mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuron_scheduler import cli
from tests.capture.test_files import a_list, node, pod, written

ITEMS = [node(), node("trn1-b"), pod("holder", "0,1,2,3", neuron=4, nodeName="trn1-a")]
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 5,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "schedulerName": "my-scheduler",
                "containers": [{"name": "c", "resources": {"limits": {"aws.amazon.com/neuron": 8}}}],
            },
        },
    },
}


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Write the cluster as kubectl does, and return the path."""
    (path,) = written(tmp_path, json.dumps(a_list(ITEMS)))
    return path


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Run the command, check its exit code, and return its output or its error."""
    assert cli.main(["fit", *arguments]) == code
    out, err = capsys.readouterr()
    assert (out == "") == (code == 2)
    return out + err


@pytest.mark.parametrize(
    ("arguments", "code", "fitting"),
    [
        (["--devices=8", "--replicas=3"], 0, 3),
        (["--devices=8", "--replicas=4"], 1, 3),
        (["--devices=8"], 0, 3),
        (["--devices=16", "--cpu=1", "--memory=1Gi"], 0, 1),
        (["--cores=2"], 0, 28),
        (["--devices=8", "--instance-type=trn2.48xlarge"], 1, 0),
    ],
)
def test_sizes(dump: str, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, fitting: int) -> None:
    """How many fit, and the exit code that says whether that is enough."""
    (fit,) = json.loads(ask(capsys, *arguments, "--from", dump, "-o", "json", code=code))["workloads"]
    assert (fit["fitting"], fit["total"]) == (fitting, fitting)


def test_a_workload(dump: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a file, with its own number of replicas or another; as text, wide, JSON and YAML."""
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump(DEPLOYMENT))
    arguments = ["-f", str(file), "--from", dump]
    text = ask(capsys, *arguments, "--buy=1xtrn1.32xlarge", code=1)
    assert text.startswith("3 of 5 replicas of Deployment web fit now (8 Neuron devices each).")
    assert "1 x trn1.32xlarge" in text
    assert "Note: the files have no" in text
    assert "All 3 replicas" in ask(capsys, *arguments, "--replicas=3", "-o", "wide", code=0)
    answer: Any = yaml.safe_load(ask(capsys, *arguments, "-o", "yaml", code=1))
    assert answer["workloads"][0]["limit"]["cause"] == "capacity"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "say what a pod asks for"),
        (["--devices=x"], "'x' is not a number"),
        (["--devices=-1"], "devices is -1"),
        (["--devices=8", "--cpu=much"], "much"),
        (["--devices=8", "--buy=two"], "is no purchase"),
        (["-f", "/no/such"], "/no/such cannot be read"),
        (["-f", "x", "--devices=8", "--cpu=1"], "leave out --devices, --cpu"),
    ],
)
def test_mistakes(dump: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """One sentence, and 2."""
    error = ask(capsys, *arguments, "--from", dump, code=2)
    assert says in error
    assert error.count("\n") == 1
