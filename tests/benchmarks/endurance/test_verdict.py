"""What is judged: growth by the median of slopes, the end by the beginning, the log by the faults."""

from typing import Any

import attrs
import pytest

from benchmarks.endurance import verdict
from benchmarks.endurance.samples import Sample
from benchmarks.endurance.verdict import MIB

IDLE = Sample(
    replica="r",
    at=0.0,
    leads=True,
    memory=100 * MIB,
    tasks=99,
    descriptors=44,
    pending={"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0},
    in_flight=0,
    waiting=0,
    lines=0,
    loud=0,
    bound=0,
)


def hour(growth: float = 0.0, jump: int = 0, *, seconds: float = 1_800.0, **fields: Any) -> list[Sample]:
    """Return samples whose memory grows by so many bytes in all, with one sample that is higher by a jump."""
    return [
        attrs.evolve(
            IDLE,
            at=number * seconds / 60,
            memory=100 * MIB + int(growth * number / 60) + (jump if number == 30 else 0),
            bound=number * 1_000,
            **fields,
        )
        for number in range(61)
    ]


def test_the_slope_is_not_moved_by_an_outlier() -> None:
    """Half of the points may be anything."""
    points = [(float(x), 2.0 * x) for x in range(20)]
    assert verdict.slope(points) == pytest.approx(2.0)
    assert verdict.slope([*points, (20.0, 1e9)]) == pytest.approx(2.0)
    assert verdict.slope([(1.0, 5.0), (1.0, 9.0)]) == 0.0


@pytest.mark.parametrize(
    ("samples", "holds"),
    [
        (hour(), True),
        (hour(jump=50 * MIB), True),  # a list in between
        (hour(60_000 * 15.0), True),
        (hour(60_000 * 100.0), False),  # an entry of a dict for each pod
        (hour(60_000 * 100.0, seconds=300.0), True),  # too short to judge
    ],
)
def test_memory_may_grow_by_less_than_an_object_for_each_pod(samples: list[Sample], holds: bool) -> None:
    """60,000 pods in half an hour."""
    finding = verdict.memory(samples, 0.0, 3_600.0)
    assert finding.holds is holds
    assert (finding.bound == verdict.TOO_SHORT) is (samples[-1].at < verdict.SHORTEST)


def test_memory_may_grow_with_the_load() -> None:
    """What is kept for minutes needs room for more of it; samples before and after such a rise are not compared."""
    quiet = hour()
    busy = [
        attrs.evolve(IDLE, at=1_830.0 + number * 30, memory=140 * MIB, bound=60_000 + number * 5_000)
        for number in range(60)
    ]
    assert verdict.highest_loads(quiet)[-1] == 12_000
    assert verdict.highest_loads([*quiet, *busy])[-1] == 60_000
    assert verdict.memory([*quiet, *busy], 400.0, 9_999.0).holds
    late = [attrs.evolve(each, memory=each.memory + 100 * (each.bound - 60_000)) for each in busy]
    assert not verdict.memory([*quiet, *late], 2_300.0, 9_999.0).holds


def test_descriptors_may_not_grow() -> None:
    """They move, because connections are opened and closed, but not in one direction."""
    steady = [attrs.evolve(each, descriptors=90 + number % 9) for number, each in enumerate(hour())]
    leaking = [attrs.evolve(each, descriptors=90 + number) for number, each in enumerate(hour())]
    assert verdict.descriptors(steady).holds
    assert not verdict.descriptors(leaking).holds


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({}, []),
        ({"tasks": 99 + verdict.MORE_TASKS}, []),
        ({"tasks": 130}, ["r: tasks at the end"]),
        ({"descriptors": 200}, ["r: descriptors at the end"]),
        ({"in_flight": 1}, ["r: pods and Bindings in its queues at the end"]),
        ({"pending": {"unschedulable": 2}}, ["r: pods and Bindings in its queues at the end"]),
        ({"leads": False, "tasks": 60}, ["r: tasks at the end"]),  # a follower has fewer
    ],
)
def test_the_end_is_as_the_beginning(change: dict[str, Any], failing: list[str]) -> None:
    """A leader is compared with the leader, a follower with the follower."""
    before = [IDLE, attrs.evolve(IDLE, leads=False, tasks=41)]
    findings = verdict.at_rest(attrs.evolve(IDLE, **change), before)
    assert [finding.what for finding in findings if not finding.holds] == failing


def test_the_log_may_be_as_loud_as_there_were_faults() -> None:
    """The last sample of each process has all its lines."""
    samples = [attrs.evolve(IDLE, lines=50, loud=5), attrs.evolve(IDLE, lines=100, loud=40)]
    samples.append(attrs.evolve(IDLE, replica="q", lines=20, loud=10))
    assert verdict.log_rate(samples, requests=20, minutes=2.0).holds
    finding = verdict.log_rate(samples, requests=10, minutes=2.0)
    assert (finding.holds, finding.seen) == (False, "60 lines a minute; 50 warnings and errors")


def test_the_tables_have_a_line_for_each_finding_and_each_moment() -> None:
    """Of several samples in one part of the run the first is shown."""
    shown = verdict.table([verdict.Finding("a", "1", "0", holds=False)]).splitlines()
    assert shown[-1] == "| a | 1 | 0 | NO |"
    assert len(verdict.course(hour(), minutes=10).splitlines()) == 2 + 4


def test_the_fastest_minute() -> None:
    """A thousand pods each half minute, and twice as many in one of them."""
    samples = [
        attrs.evolve(each, bound=each.bound + (1_000 if number > 20 else 0)) for number, each in enumerate(hour())
    ]
    assert verdict.fastest(hour()) == pytest.approx(1_000 / 30)
    assert verdict.fastest(samples) == pytest.approx(3_000 / 60)
    assert verdict.fastest(samples[:2]) == 0.0
    assert verdict.fastest([]) == 0.0
