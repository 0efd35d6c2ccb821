"""`map` from files: its forms, and one sentence for a mistake."""

import json
from pathlib import Path

import pytest
import yaml

from neuron_scheduler import cli
from tests.capture.test_files import a_list, node, pod, written

ITEMS = [node(), node("trn1-b", unschedulable=True), pod("holder", "0,1,2,3", neuron=4, nodeName="trn1-a")]


@pytest.fixture
def dump(tmp_path: Path) -> str:
    """Write the cluster as kubectl does, and return the path."""
    (path,) = written(tmp_path, json.dumps(a_list(ITEMS)))
    return path


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run the command, check its exit code, and return its output or its error."""
    assert cli.main(["map", *arguments]) == code
    out, err = capsys.readouterr()
    assert (out == "") == (code == 2)
    return out + err


def test_forms(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A picture, one node, JSON and YAML; the sums are the same."""
    text = ask(capsys, "--from", dump)
    assert "All: 2 nodes, 32 devices: 12 free" in text
    assert "Note: the files have no " in text
    assert "trn1-b" not in ask(capsys, "trn1-a", "--from", dump)
    assert "In no zone: 2 nodes" in ask(capsys, "--by=zone", "-o", "wide", "--from", dump)
    for form in ("json", "yaml"):
        fleet = yaml.safe_load(ask(capsys, "--from", dump, "-o", form))
        assert [(t["devices"], t["free"], t["used"], t["withheld"]) for t in fleet["types"]] == [(32, 12, 4, 16)]
    (machine,) = json.loads(ask(capsys, "trn1-a", "--from", dump, "-o", "json"))["machines"]
    assert machine["holders"][0]["name"] == "holder"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none"], "there is no node none with Neuron"),
        (["--by=rack"], "invalid choice: 'rack'"),
    ],
)
def test_mistakes(dump: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    """One sentence, and 2."""
    error = ask(capsys, *arguments, "--from", dump, code=2)
    assert says in error
    assert error.count("\n") == 1
