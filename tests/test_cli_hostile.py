"""Objects with any value in any place: an answer or one sentence, and nothing that controls the terminal."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from neuron_scheduler import cli
from tests.capture.test_files import a_list, node, pod, spoil, written
from tests.support.thoroughness import examples

EVIL = "e\x1b[2J\x07vil\u202e\n\ud800"
COMMANDS = (
    ("why", "default/waits"),
    ("why", "default/waits", "-o", "wide"),
    ("why", "default/waits", "-o", "yaml"),
    ("why", "default/waits", "--node", "trn1-a"),
    ("why", "default/holder"),
    ("why", "-A", "-o", "wide"),
    ("fit", "--devices=4", "--replicas=5"),
    ("fit", "--cores=1", "-o", "json"),
    ("map",),
    ("map", "-o", "wide", "--by", "zone"),
    ("map", "trn1-a"),
    ("map", "-o", "json"),
)


def cluster() -> list[Any]:
    """Return a few objects of each kind that decides something."""
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "uid": "uid-budget"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 0},
    }
    items = [
        node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]),
        node("trn1-b", unschedulable=True),
        node("inf2-a", instance_type="inf2.24xlarge"),
        pod("holder", "0,1,2,3", neuron=4, nodeName="trn1-a"),
        pod("odd", neuron=1, nodeName="inf2-a"),
        pod("waits", neuron=16, phase="Pending"),
        pod("theirs", neuron=4, phase="Pending", scheduler_name="default-scheduler"),
        budget,
    ]
    copied: list[Any] = json.loads(json.dumps(items))
    for item in copied:
        item["metadata"].setdefault("labels", {})["app"] = "a"
    return copied


def check_all(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run all commands, and check what they print."""
    for command in COMMANDS:
        code = cli.main([*command, "--from", path])
        out, err = capsys.readouterr()
        assert code in (0, 1, 2), command
        assert "a mistake in this program" not in err, (command, err)
        assert (out == "", err.count("\n")) == ((True, 1) if code == 2 else (False, 0)), (command, out, err)
        assert [line for line in (out + err).split("\n") if not line.isprintable()] == [], command


@pytest.mark.parametrize("seed", range(examples(40)))
def test_spoilt_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int) -> None:
    """Several values are replaced by others."""
    dice = Random(seed)
    items = cluster()
    for item in dice.sample(items, 3):
        for _ in range(dice.randint(1, 3)):
            spoil(dice, item)
    (path,) = written(tmp_path, json.dumps(a_list(items)))
    check_all(path, capsys)


def test_names_that_control_terminals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In names, labels, taints, schedulers, gates and annotations."""
    items = json.loads(json.dumps(a_list(cluster())).replace('"v"', json.dumps(EVIL)).replace('"a"', json.dumps(EVIL)))
    for item in items["items"]:
        item["metadata"]["annotations"] = {EVIL: EVIL, "AWS_NEURON_IDS": EVIL}
        if item["kind"] == "Pod":
            item["spec"]["schedulerName"] = EVIL
            item["spec"]["nodeSelector"] = {EVIL: EVIL}
    gated = pod(EVIL, neuron=1, phase="Pending")
    gated["spec"]["schedulingGates"] = [{"name": EVIL}]
    gated["metadata"]["namespace"] = EVIL
    strange = node(EVIL, instance_type="trn1.32xlarge")
    strange["metadata"]["labels"] |= {"topology.kubernetes.io/zone": EVIL, "node.kubernetes.io/instance-type": EVIL}
    items["items"] += [gated, strange]
    (path,) = written(tmp_path, json.dumps(items))
    check_all(path, capsys)
