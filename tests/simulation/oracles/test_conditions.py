"""The oracle of conditions: they say what is so."""

from typing import Any

import pytest

from tests.simulation.oracles.conditions import Conditions
from tests.support.histories import Story, bound, pod, with_status

REFUSED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}


def judged(story: Story, *, now: float = 0.0, left_out: frozenset[str] = frozenset()) -> list[str]:
    """Return what the oracle finds in a story, and at a moment if one is given."""
    found: list[str] = []
    conditions = Conditions(report=lambda _, text: found.append(text))
    for change in story.changes:
        conditions.changed(change)
    if now:
        pods = [change.object for change in story.changes]
        conditions.silent(now, pods, quiet_since=60.0, left_out=left_out)
    return found


def test_a_bound_pod_that_is_called_unscheduled() -> None:
    """A late condition must not mark a bound pod; what others write is theirs."""
    for author, count in (("scheduler-0", 1), (None, 1), ("", 0)):
        story = Story()
        on_node = story.put(bound(story.put(pod("p")), "trn", [0]))
        story.put(with_status(on_node, phase="Running"), author=author)
        assert judged(story) == []
        story.put(with_status(on_node, conditions=[REFUSED]), author=author)
        assert len(judged(story)) == count


@pytest.mark.parametrize(
    ("made", "now", "count"),
    [
        (pod("p"), 95.0, 1),
        (pod("p"), 80.0, 0),
        (with_status(pod("p"), conditions=[REFUSED]), 95.0, 0),
        (pod("p", schedulerName="other"), 95.0, 0),
        (bound(pod("p"), "trn", [0]), 95.0, 0),
    ],
    ids=["silent", "soon", "says why", "another's", "bound"],
)
def test_a_pod_that_waits_says_why(made: dict[str, Any], now: float, count: int) -> None:
    """Half a minute after the last fault its condition has a message."""
    story = Story()
    story.put(made)
    assert len(judged(story, now=now)) == count
    assert judged(story, now=now, left_out=frozenset({"uid-p"})) == []
