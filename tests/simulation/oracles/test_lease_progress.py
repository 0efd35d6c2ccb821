"""The oracle of the Lease: a loop that makes no progress must not keep it."""

import pytest

from tests.simulation.oracles.change import MODIFIED, Change
from tests.simulation.oracles.lease_progress import LeaseProgress
from tests.support.histories import lease


def a_judge(found: list[str]) -> LeaseProgress:
    """Return the oracle for a Lease with a renew deadline of 10 s."""
    return LeaseProgress(
        report=lambda _, text: found.append(text), lease=("kube-system", "my-scheduler"), renew_deadline=10.0
    )


def renewal(at: float, holder: str, before: str = "a") -> Change:
    """Return a renewal, or a takeover."""
    new, old = lease(holder), lease(before)
    new["spec"]["renewTime"] = str(at)
    return Change(at=at, version=1, type=MODIFIED, object=new, previous=old)


@pytest.mark.parametrize(("at", "count"), [(8.0, 0), (14.0, 0), (25.0, 1)])
def test_a_stuck_loop_may_renew_for_as_long_as_the_deadline(at: float, count: int) -> None:
    """A renewal long after the last step is found; one that was allowed by the last beat is not."""
    found: list[str] = []
    judge = a_judge(found)
    judge.stuck("a", 0.0, is_stuck=True)
    judge.stuck("a", 5.0, is_stuck=True)
    judge.changed(renewal(at, "a"))
    assert len(found) == count


def test_others_and_those_that_run_again() -> None:
    """A takeover by another, and a renewal after the loop runs again, are right."""
    found: list[str] = []
    judge = a_judge(found)
    judge.stuck("a", 0.0, is_stuck=True)
    judge.changed(renewal(30.0, "b"))
    judge.stuck("a", 31.0, is_stuck=False)
    judge.changed(renewal(40.0, "a"))
    assert found == []


def test_a_loop_that_runs_and_does_not_look_at_its_queue() -> None:
    """It has to end after a minute, and a little more; it is reported once."""
    found: list[str] = []
    judge = a_judge(found)
    for now in (30.0, 70.0, 80.0, 90.0):
        judge.looked("a", now, 0.0)
    judge.looked("b", 500.0, None)
    judge.looked("c", 500.0, 499.0)
    assert len(found) == 1
    assert "a leads" in found[0]
