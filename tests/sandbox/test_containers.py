"""Simulated containers end when their pod says so."""

from typing import Any

import pytest

from sandbox.containers import JOB_SECONDS, Run, run_of

JOB = {"ownerReferences": [{"kind": "Job", "name": "j", "uid": "u"}]}


@pytest.mark.parametrize(
    ("metadata", "policy", "want"),
    [
        ({}, "Never", Run(None)),
        (JOB, "Never", Run(JOB_SECONDS)),
        (JOB, "Always", Run(None)),
        ({"annotations": {"sandbox/run-seconds": "0.5"}}, "OnFailure", Run(0.5)),
        (JOB | {"annotations": {"sandbox/exit-code": "7"}}, "Never", Run(JOB_SECONDS, 7)),
        (JOB | {"annotations": {"sandbox/run-seconds": "soon"}}, "Never", Run(None)),
        ({"annotations": {"sandbox/run-seconds": "-1"}}, "Never", Run(None)),
    ],
)
def test_when_containers_end(metadata: dict[str, Any], policy: str, want: Run) -> None:
    """After the annotation's time, else after a Job's default, else never."""
    pod = {"metadata": {"name": "p", **metadata}, "spec": {"restartPolicy": policy, "containers": []}}
    assert run_of(pod) == want
