"""Simulated containers end when their pod says so."""

from typing import Any

import pytest

from neuron_scheduler.sandbox.containers import JOB_SECONDS, Run, run_of

JOB = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u"}]}


@pytest.mark.parametrize(
    ("metadata", "command", "want"),
    [
        ({}, [], Run(None)),
        ({}, ["train", "--steps=5"], Run(None)),
        (JOB, ["train", "--steps=5"], Run(JOB_SECONDS)),
        ({}, ["sleep", "5"], Run(5.0)),
        ({}, ["sh", "-c", "ls; sleep 1.5m; sleep 10"], Run(100.0)),
        (JOB, ["sh", "-c", "sleep 1h; exit 3"], Run(3600.0, 3)),
        (JOB, ["sleep", "infinity"], Run(None)),
        ({"annotations": {"sandbox/run-seconds": "0.5"}}, ["sleep", "5"], Run(0.5)),
        (JOB | {"annotations": {"sandbox/exit-code": "7"}}, [], Run(JOB_SECONDS, 7)),
        (JOB | {"annotations": {"sandbox/run-seconds": "soon"}}, [], Run(None)),
        ({"annotations": {"sandbox/run-seconds": "-1"}}, [], Run(None)),
    ],
)
def test_when_a_container_ends(metadata: dict[str, Any], command: list[str], want: Run) -> None:
    """After the annotation's time, else after its sleeps, else after a Job's default, else never."""
    container = {"name": "main", "image": "example/app:1", "command": command[:1], "args": command[1:]}
    pod = {"metadata": {"name": "p", **metadata}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    assert run_of(pod) == want


def test_containers_that_are_always_restarted_never_end() -> None:
    """So a Deployment whose command sleeps does not restart without end."""
    container = {"name": "main", "image": "example/app:1", "command": ["sleep", "1"]}
    pod = {"metadata": {"name": "p"}, "spec": {"restartPolicy": "Always", "containers": [container]}}
    assert run_of(pod) == Run(None)
