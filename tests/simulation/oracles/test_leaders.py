"""The oracle of leaders: who believes that it leads, and who writes."""

import pytest

from tests.simulation.oracles.leaders import Leaders
from tests.support.histories import Story, lease, pod, with_status

A, B = "scheduler-0_1", "scheduler-1_2"


def judged(story: Story) -> tuple[Leaders, list[str]]:
    """Return the oracle after a story, and what it has found."""
    found: list[str] = []
    leaders = Leaders(
        report=lambda _, text: found.append(text), lease=("kube-system", "my-scheduler"), duration=15.0, latest=5.0
    )
    for change in story.changes:
        leaders.changed(change)
    return leaders, found


@pytest.mark.parametrize(
    ("author", "pause", "count"),
    [("scheduler-1", 0.0, 0), ("scheduler-0", 1.0, 0), ("scheduler-0", 9.0, 1), ("scheduler-2", 0.0, 1), ("", 9.0, 0)],
)
def test_who_writes_to_pods(author: str, pause: float, count: int) -> None:
    """The holder may, and for a while the one before; others than replicas write what they like."""
    story = Story()
    story.put(lease(A), author="scheduler-0")
    waiting = story.put(pod("p"), author="")
    story.put(lease(B), author="scheduler-1")
    story.wait(pause)
    story.put(with_status(waiting, nominatedNodeName="n"), author=author)
    assert len(judged(story)[1]) == count


def test_two_that_may_bind() -> None:
    """They are found once, and not while somebody else's change of the Lease is fresh."""
    story = Story()
    story.put(lease(A), author="scheduler-0")
    leaders, found = judged(story)
    leaders.believed(1.0, ["scheduler-0"])
    assert found == []
    leaders.believed(2.0, ["scheduler-0", "scheduler-1"])
    leaders.believed(3.0, ["scheduler-1", "scheduler-0"])
    assert len(found) == 1
    story.put(lease(B), author="")
    leaders, found = judged(story)
    leaders.believed(3.0, ["scheduler-0", "scheduler-1"])
    assert found == []
    leaders.believed(20.0, ["scheduler-0", "scheduler-1"])
    assert len(found) == 1


@pytest.mark.parametrize(("pause", "count"), [(1.0, 0), (3.0, 1)])
def test_deletions_of_one_that_may_not_write(pause: float, count: int) -> None:
    """Where nothing delays a request, a deletion comes soon after its replica believed last that it may write."""
    story = Story()
    story.put(lease(A), author="scheduler-0")
    victim = story.put(pod("p"), author="")
    leaders, found = judged(story)
    leaders.undelayed = 2.0
    leaders.believed(story.changes[-1].at, ["scheduler-0"])
    story.wait(pause)
    story.put({**victim, "metadata": {**victim["metadata"], "deletionTimestamp": "now"}}, author="scheduler-0")
    leaders.changed(story.changes[-1])
    assert len(found) == count
