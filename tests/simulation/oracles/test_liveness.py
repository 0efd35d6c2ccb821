"""The oracle of liveness: a pod that fits must not sleep; one that does not fit may."""

from typing import Any

import pytest

from tests.simulation.oracles.liveness import BOUND, Liveness
from tests.support.histories import bound, node, pod, with_status

LATER = BOUND + 1


def judged(
    pods: list[dict[str, Any]], *times: float, restarted_at: float = 0.0, nodes: tuple[dict[str, Any], ...] = ()
) -> list[str]:
    """Return what the oracle says when it looks at these times; the last fault ends at 100."""
    found: list[str] = []
    tables = {"pods": pods, "nodes": list(nodes) or [node()], "namespaces": []}
    for obj in (*pods, *tables["nodes"]):
        obj["metadata"].setdefault("uid", f"uid-{obj['metadata']['name']}")
    liveness = Liveness(report=lambda _, text: found.append(text), tables=tables.__getitem__, quiet_at=100.0)
    for at in times:
        liveness.sampled(at, restarted_at=restarted_at)
    return found


def test_a_pod_that_fits_and_sleeps() -> None:
    """It is found once, when it has fitted for longer than the bound after the last fault."""
    assert judged([pod("p", 4)], 0.0, 50.0, 100.0, 100.0 + BOUND) == []
    (found,) = judged([pod("p", 4)], 0.0, 100.0, 100.0 + LATER, 110.0 + LATER)
    assert found.startswith("default/p has fitted on trn for 31 s")


def test_a_successor_has_as_long_again() -> None:
    """When a process has ended, its successor has the same time."""
    assert judged([pod("p", 4)], 100.0, 100.0 + LATER, restarted_at=110.0) == []
    assert len(judged([pod("p", 4)], 100.0, 110.0 + LATER, restarted_at=110.0)) == 1


def test_only_time_in_which_it_fits_counts() -> None:
    """A pod that fitted, did not, and fits again has its time again."""
    pods = [pod("p", 16)]
    found: list[str] = []
    tables: dict[str, list[dict[str, Any]]] = {"pods": pods, "nodes": [node()], "namespaces": []}
    liveness = Liveness(report=lambda _, text: found.append(text), tables=tables.__getitem__, quiet_at=0.0)
    for at, nodes in ((0.0, [node()]), (20.0, []), (25.0, [node()]), (45.0, [node()])):
        tables["nodes"] = nodes
        liveness.sampled(at)
    assert found == []
    liveness.sampled(25.0 + LATER)
    assert len(found) == 1


@pytest.mark.parametrize(
    "pods",
    [
        [pod("p", 3)],
        [pod("p", 17)],
        [pod("p", 4, schedulerName="other")],
        [pod("p", 4, schedulingGates=[{"name": "wait"}])],
        [pod("p", 4, nodeSelector={"zone": "nowhere"})],
        [with_status(bound(pod("a", 16), "trn", range(16)), phase="Running"), pod("p", 1)],
        [bound(pod("a", 4), "trn", range(4)), pod("p", 4)],
        [with_status(pod("a", 16, priority=10), nominatedNodeName="trn"), pod("p", 1)],
    ],
    ids=["illegal", "too many", "another's", "gated", "selector", "full", "kubelet", "nominated"],
)
def test_a_pod_that_has_to_wait(pods: list[dict[str, Any]]) -> None:
    """No node takes it, or it is not ours to place, or the scheduler has promised to wait."""
    assert not any("default/p" in text for text in judged(pods, 100.0, 100.0 + LATER, 100.0 + 2 * LATER))


def test_beside_pods_that_run() -> None:
    """What others leave free on a node counts."""
    admitted = with_status(bound(pod("a", 8), "trn", range(8)), phase="Running", startTime="2026-11-21T08:00:00Z")
    assert len(judged([admitted, pod("p", 8)], 100.0, 100.0 + LATER)) == 1
    assert judged([admitted, pod("p", 16)], 100.0, 100.0 + LATER) == []


def test_a_nomination_that_cannot_be_kept_keeps_nothing() -> None:
    """A pod of the same priority is there, or the node refuses the nominated pod: then others need not wait for it."""
    waits = with_status(pod("a", 16, priority=10), nominatedNodeName="trn")
    known = bound(pod("b", 1, priority=10), "trn", [15])
    there = with_status(known, phase="Running", startTime="2026-11-21T08:00:00Z")
    (found,) = judged([waits, there, pod("p", 1)], 100.0, 100.0 + LATER)
    assert "default/p has fitted" in found
    lower = there | {"spec": there["spec"] | {"priority": 0}}
    assert judged([waits, lower, pod("p", 1)], 100.0, 100.0 + LATER) == []
