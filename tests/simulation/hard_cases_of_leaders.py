"""
Hard cases of those who lead, and of those who take over: leaders that stand still, handovers at a bad moment.

Each was found on a real cluster, or is what a node, a kernel or a rolling update does on any day. Refuses to last
beyond the quiet.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import attrs

from tests.simulation.case_parts import alone, always, more, once, pods, scheduler_1_leads, small
from tests.simulation.deeds_of_machines import AnnotateLease
from tests.simulation.fault_choices import bearable, between_leaders, longest
from tests.simulation.http_faults import LATE
from tests.simulation.oracles.kept_leases import STEP
from tests.simulation.scenario import Deed, Fault, Scenario

_LEASE: Final = (15.0, 10.0, 2.0)
_QUIET: Final = 40.0
_ENDS: Final = 85.0


def _a_pause_at_a_slow_lease(scenario: Scenario, dice: Random) -> Scenario:
    """Requests about the Lease are lost for a while, and the thread that sends them pauses when one succeeds again."""
    case = alone(scenario, until=30.0, replicas=2, fenced=True, lease=_LEASE, quiet_at=_QUIET, ends_at=_ENDS)
    faults, news = [scheduler_1_leads(), always(case, "answer late", "lease", 1.2)], list[Deed]()
    for at in (round(dice.uniform(7, 9), 3), round(dice.uniform(21, 23), 3)):
        faults.append(Fault(kind="request lost", at=at, until=round(at + 5.5, 3), target="lease"))
        faults.append(once("lease thread stopped", round(at + 7, 3), 1, 3.3))
        news += [small(f"s{at:.0f}-{n}", at + 8.5 + n / 10) for n in range(30)]
    return more(case, news, faults)


def _a_standstill_at_a_slow_lease(scenario: Scenario, dice: Random) -> Scenario:
    """The leader stands still until another replica leads, and then the answer to its last renewal comes."""
    case = alone(scenario, until=30.0, replicas=2, fenced=True, lease=_LEASE, quiet_at=_QUIET, ends_at=_ENDS)
    stop = once(dice.choice(("stopped", "lease thread stopped")), round(dice.uniform(14, 16), 3), 1, 22.0)
    news = [small(f"s{n}", dice.uniform(8, _QUIET - 1)) for n in range(12)]
    return more(case, news, [scheduler_1_leads(), stop, always(case, "answer late", "lease", 3.0)])


def _a_leader_is_cut_off(scenario: Scenario, dice: Random) -> Scenario:
    """The answers about the Lease are slow, then the leader has no network; the Lease is short for its deadline."""
    lease, cut_off = (11.0, 10.0, 2.0), round(dice.uniform(10, 12), 3)
    case = alone(scenario, until=30.0, replicas=2, fenced=True, lease=lease, quiet_at=_QUIET, ends_at=_ENDS)
    cut = Fault(kind="connection cut", at=cut_off, until=cut_off + 15, target="scheduler-1")
    slow = Fault(kind="answer late", at=0.0, until=cut_off, target="lease", seconds=2.5)
    news = [small(f"s{n}", dice.uniform(8, _QUIET - 1)) for n in range(12)]
    return more(case, news, [scheduler_1_leads(), slow, cut, attrs.evolve(cut, kind="connection refused")])


def _long_steps(scenario: Scenario, dice: Random) -> Scenario:
    """One step of each scheduler's loop takes longer than the renew deadline: a huge object, or a busy node."""
    seconds = round(STEP * scenario.lease[1], 2)
    case = alone(scenario, until=30.0, replicas=2, fenced=True, quiet_at=_QUIET, ends_at=_ENDS)
    steps = [once("long step", round(dice.uniform(4, 6) + 17 * n, 3), n, seconds) for n in range(2)]
    return more(case, [small(f"s{n}", dice.uniform(4, _QUIET - 1)) for n in range(6)], steps)


def _asked_twice_to_end(scenario: Scenario, dice: Random) -> Scenario:
    """
    A leader with Bindings on their way is asked to end, and soon after to hurry; more urgent pods come in between.

    There is no fence, so the Bindings may be carried out when the next replica leads already.
    """
    case = alone(scenario, until=30.0, replicas=2, fenced=False, quiet_at=_QUIET, ends_at=_ENDS)
    at, kind = round(dice.uniform(10, 12), 3), scenario.nodes[0][1]
    late = always(case, LATE, "bindings", round(between_leaders(scenario) / 2 - 0.1, 2), 0.8)
    deeds = [*pods("a", 6, at - 0.2, instance_type=kind)]
    deeds += pods("b", 6, at + 0.2, instance_type=kind, priority="urgent")
    return more(case, deeds, [scheduler_1_leads(), once("terminated", at, 1), once("terminated", at + 0.3, 1), late])


def _handover_in_a_long_step(scenario: Scenario, dice: Random) -> Scenario:
    """A leader ends while a step of the other replica takes long, and pods come all the time."""
    case = alone(scenario, until=30.0, replicas=2, fenced=True, quiet_at=_QUIET, ends_at=_ENDS)
    faults, news = [scheduler_1_leads()], list[Deed]()
    for leader, at in ((1, dice.uniform(9, 10)), (0, dice.uniform(17, 18)), (1, dice.uniform(25, 26))):
        faults += [once("long step", round(at, 3), 1 - leader, 2.5), once("terminated", round(at + 0.1, 3), leader)]
        news += [small(f"s{at:.0f}-{n}", at + 0.1 + n / 10) for n in range(24)]
    return more(case, news, faults)


def _start_in_a_handover(scenario: Scenario, dice: Random) -> Scenario:
    """
    A replica starts, and lists slowly; the leader's last Bindings are carried out before its list comes, and it ends.

    The watch is late, too. The node has room for the urgent pods, or for the others.
    """
    nodes = (("n1", "trn1.32xlarge"),)
    times = {"lease": _LEASE, "quiet_at": _QUIET, "ends_at": _ENDS}
    case = alone(scenario, until=30.0, replicas=2, fenced=True, page_size=0, nodes=nodes, **times)
    faults = [
        scheduler_1_leads(),
        once("killed", 12.0, 0),
        Fault(kind=LATE, at=16.0, until=18.0, target="bindings", seconds=1.8),
        Fault(kind="answer late", at=12.0, until=22.0, target="lists", seconds=3.0),
        Fault(kind="watch late", at=15.0, until=30.0, target="pods", seconds=2.0),
        once("terminated", round(dice.uniform(18.2, 18.4), 3), 1),
    ]
    deeds = [*pods("hold", 8, 0.5), *pods("q", 1, 16.3, devices=(8,), priority="urgent")]
    return more(case, [*deeds, *pods("y", 1, 16.35, devices=(8,))], faults)


def _requests_queue(scenario: Scenario, dice: Random) -> Scenario:
    """Requests wait somewhere, and some of them are carried out when nobody waits for the answer any more."""
    kinds = dice.choice((("bindings",), ("bindings",), ("statuses",), ("deletes", "statuses"), ("lease",), ("",)))
    seconds = round(min(dice.choice((1.5, 4.0, 12.0, 30.0)), longest(scenario)), 2)
    chance = dice.choice((0.1, 0.3, 0.7))
    faults = [always(scenario, LATE, kind, seconds, chance) for kind in kinds]
    return bearable(more(scenario, faults=faults))


def _notes_on_the_lease(scenario: Scenario, dice: Random) -> Scenario:
    """Somebody annotates the Lease now and then."""
    return more(scenario, [AnnotateLease(at=round(dice.uniform(3, scenario.quiet_at - 1), 3)) for _ in range(4)])


CASES: Final[tuple[Callable[[Scenario, Random], Scenario], ...]] = (
    *(_a_pause_at_a_slow_lease, _a_standstill_at_a_slow_lease, _long_steps, _asked_twice_to_end),
    *(_handover_in_a_long_step, _start_in_a_handover, _notes_on_the_lease, _requests_queue, _a_leader_is_cut_off),
)
