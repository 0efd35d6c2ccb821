"""The oracle of the Lease: a loop that makes no progress must not keep it."""

from tests.simulation.oracles.lease_progress import LeaseProgress


def test_a_loop_that_runs_and_does_not_look_at_its_queue() -> None:
    """It has to end after a minute, and a little more; it is reported once."""
    found: list[str] = []
    judge = LeaseProgress(report=lambda _, text: found.append(text))
    for now in (30.0, 70.0, 80.0, 90.0):
        judge.looked("a", now, 0.0)
    judge.looked("b", 500.0, None)
    judge.looked("c", 500.0, 499.0)
    assert len(found) == 1
    assert "a leads" in found[0]
