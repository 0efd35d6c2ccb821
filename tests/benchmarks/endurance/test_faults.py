"""One fault after the other, and those of the Lease never for longer than its leader can do without a renewal."""

import random
from typing import cast

import pytest

from benchmarks.endurance import faults
from benchmarks.endurance.faults import ALONE, FAULTS, MOST, Faults
from tests.faults.proxy import Fault, Proxy


class NoRequests:
    """A proxy that no request reaches."""

    def __init__(self) -> None:
        """Begin without faults."""
        self.faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        """Note a fault, all of whose requests have come at once."""
        fault.times = 0
        self.faults.append(fault)
        return fault

    def cut(self) -> None:
        """Do nothing: there are no connections."""


async def test_a_fault_ends_and_is_counted() -> None:
    """By the requests that it has met."""
    proxy = NoRequests()
    made = Faults(cast(Proxy, proxy), random.Random(1))
    await made._cause("Binding: 503")
    assert (proxy.faults, made.counts, made.cuts) == ([], {"Binding: 503": MOST}, 0)
    await made._cause("watch: silent")
    assert made.cuts == 1


@pytest.mark.parametrize("name", [name for name in FAULTS if name.startswith(faults.ON_THE_LEASE)])
async def test_after_a_fault_the_lease_is_left_alone(name: str) -> None:
    """For as long as a leader tries to renew it."""
    now = [100.0]
    made = Faults(cast(Proxy, NoRequests()), random.Random(1), lambda: now[0])
    assert made._choices() == list(FAULTS)
    await made._cause(name)
    assert made._choices() == [name for name in FAULTS if not name.startswith("Lease")]
    now[0] += ALONE
    assert made._choices() == list(FAULTS)
