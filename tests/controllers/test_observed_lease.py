"""When a Lease may be taken, and who has become its holder."""

import attrs
import pytest

from neuron_scheduler.controllers.leader_elector import ObservedLease
from neuron_scheduler.kube.writes.lease import Record

OTHERS = Record("other", 15, resource_version="1")


@attrs.define(eq=False)
class Clock:
    """Seconds that a test sets."""

    now: float = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def test_the_time_counts_from_the_last_observed_change() -> None:
    """An unchanged Lease expires after the duration in it; a renewal starts the time again."""
    clock = Clock()
    lease = ObservedLease("me", clock)
    lease.observe(OTHERS)
    clock.now += 10.0
    lease.observe(OTHERS)
    assert lease.expires_in() == 5.0
    lease.observe(attrs.evolve(OTHERS, resource_version="2"))
    assert (lease.expires_in(), lease.version) == (15.0, "2")


@pytest.mark.parametrize("record", [None, Record("", 15), Record("me", 15)], ids=["absent", "released", "ours"])
def test_a_free_lease_may_be_taken_at_once(record: Record | None) -> None:
    """It may be if it does not exist, has no holder, or has our name in it."""
    lease = ObservedLease("me", Clock())
    assert not lease.observe(record)
    assert lease.expires_in() == 0.0


def test_another_holder_is_new_once() -> None:
    """A renewal by the same holder is not news."""
    lease = ObservedLease("me", Clock())
    assert lease.observe(OTHERS)
    assert not lease.observe(attrs.evolve(OTHERS, resource_version="2"))
    assert lease.observe(Record("third", 15))
