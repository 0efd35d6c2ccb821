"""A report is written when it changes, and at most every 30 s if only its numbers change."""

from typing import Any, cast

import attrs
import pytest

from neuron_scheduler.cluster.changes import PodGone
from neuron_scheduler.controllers.pod_reporter import OBSERVED_AT_ONCE, PodReporter
from neuron_scheduler.kube.writes.condition_writer import WaitingStatus
from neuron_scheduler.model.nomination import KEEP, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.neuron.topology import Placement
from tests.support.builders import pod

FULL = "0/{n} nodes are available: {n} Insufficient aws.amazon.com/neuron."


@attrs.define(eq=False)
class Reports:
    """Stands in for recorder and condition writer, and for the clock; remembers Events and conditions."""

    now: float = 0.0
    events: list[tuple[str, str]] = attrs.field(factory=list)
    related: list[str] = attrs.field(factory=list)
    conditions: list[tuple[str, str]] = attrs.field(factory=list)

    def __call__(self) -> float:
        return self.now

    def record(self, pod: Pod, *, type: str, reason: str, action: str, note: str, related: Pod | None = None) -> None:  # noqa: A002 - the field's name
        """Remember an Event."""
        assert type
        assert action
        self.related += [] if related is None else [related.key]
        self.events.append((f"{pod.name}: {reason}", note))

    def set(self, pod: Pod, *, reason: str, message: str, nomination: NominationChange = KEEP) -> None:
        """Remember a condition."""
        assert nomination == KEEP
        self.conditions.append((f"{pod.name}: {reason}", message))

    def clear_nomination(self, pod: Pod) -> None:
        raise AssertionError(pod.key)

    def last(self, pod: Pod) -> WaitingStatus | None:
        """Return what was last set for the pod."""
        said = [(what.partition(": ")[2], text) for what, text in self.conditions if what.startswith(f"{pod.name}: ")]
        return WaitingStatus(*said[-1]) if said else None

    def forget(self, uid: str) -> None:
        """Do nothing."""


@pytest.fixture
def reports() -> Reports:
    """Return the stand-in."""
    return Reports()


@pytest.fixture
def reporter(reports: Reports) -> PodReporter:
    """Return the reporter of a leader."""
    return PodReporter(recorder=cast(Any, reports), conditions=cast(Any, reports), clock=reports, may_bind=lambda: True)


def test_numbers_alone_are_told_every_half_minute(reports: Reports, reporter: PodReporter) -> None:
    """The condition writer has its own limit, so it gets every message; an Event is written after the pause."""
    for at in (0, 10, 29.9, 30, 59, 61):
        reports.now = at
        reporter.report_unschedulable(pod(), FULL.format(n=1 + int(at)), new_node_cannot_help=False)
    assert [note for _, note in reports.events] == [FULL.format(n=n) for n in (1, 31, 62)]
    assert len(reports.conditions) == 6


def test_the_same_message_is_told_every_five_minutes(reports: Reports, reporter: PodReporter) -> None:
    """Each refusal would be an Event of its own, and there may be thousands of pods."""
    for at in (0, 30, 299, 300, 400):
        reports.now = at
        reporter.report_unschedulable(pod(), FULL.format(n=1), new_node_cannot_help=False)
    assert len(reports.events) == 2


def test_a_changed_reason_is_reported_at_once(reports: Reports, reporter: PodReporter) -> None:
    """Another text, another reason, another pod, or a pod that came back gets an Event at once."""
    reporter.report_unschedulable(pod("a"), "one", new_node_cannot_help=False)
    reporter.report_unschedulable(pod("a"), "two", new_node_cannot_help=False)
    reporter.report_unschedulable(pod("a"), "two", new_node_cannot_help=True)
    reporter.report_unschedulable(pod("b"), "two", new_node_cannot_help=True)
    reporter.observe(PodGone(pod("b"), None, ""))
    reporter.report_unschedulable(pod("b"), "two", new_node_cannot_help=True)
    assert (
        reports.events
        == [("a: FailedScheduling", text) for text in ("one", "two", "two")] + [("b: FailedScheduling", "two")] * 2
    )
    assert [reason for reason, _ in reports.conditions] == [
        "a: Unschedulable",
        "a: Unschedulable",
        "a: SchedulerError",
        "b: SchedulerError",
        "b: SchedulerError",
    ]


@pytest.mark.parametrize("leads", [True, False])
def test_an_unknown_allocation_is_told_by_the_leader(reports: Reports, reporter: PodReporter, leads: bool) -> None:
    """The Event says why, what it means for other pods, and what to do; a replica on standby writes none."""
    reporter.may_bind = lambda: leads
    reporter.report_unknown_allocation(pod("p", on="trn1"), "no annotation names its ids", "set schedulerName")
    note = (
        "The Neuron devices of this pod are unknown: no annotation names its ids. Until it ends, node trn1 gets no pod"
        " that asks for more than one device or core, but fewer than all;"
        " set schedulerName"
    )
    assert reports.events == ([("p: NeuronAllocationUnknown", note)] if leads else [])


@pytest.mark.parametrize(
    ("asking", "ids", "given"),
    [
        pytest.param({"devices": 4}, (4, 5, 6, 7), " (devices 4-7)", id="a run"),
        pytest.param({"devices": 1}, (3,), " (device 3)", id="one"),
        pytest.param({"cores": 9}, tuple(range(9)), " (cores 0-8)", id="cores"),
        pytest.param({"cores": 1}, (63,), " (core 63)", id="one core"),
        pytest.param({"devices": (4, 1)}, (0, 1, 2, 3, 8), " (devices 0-3, 8)", id="a set for each container"),
        pytest.param({"devices": (1, 1, 2)}, (0, 2, 4, 5), " (devices 0, 2, 4-5)", id="three"),
        pytest.param({}, None, "", id="no Neuron"),
    ],
)
def test_a_bound_pod_is_told_its_ids(
    reports: Reports, reporter: PodReporter, asking: dict[str, int], ids: tuple[int, ...] | None, given: str
) -> None:
    """Upstream's sentence to the letter, which tools match, followed by the ids as ranges."""
    placement = None if ids is None else Placement(ids, (ids,), NO_CORES, 1)
    reporter.report_scheduled(pod("p", **asking), "trn1-a", placement)  # type: ignore[arg-type]  # by name
    assert reports.events == [("p: Scheduled", f"Successfully assigned default/p to trn1-a{given}")]


def test_a_binding_in_doubt_is_told_by_an_event_alone(reporter: PodReporter, reports: Reports) -> None:
    """The condition is not written: the pod may be bound, and its condition True."""
    reporter.report_doubt(pod("p"), "no definite outcome")
    assert reports.events == [("p: FailedBinding", "no definite outcome")]
    assert not reports.conditions


def test_a_binding_that_waits_is_told_by_an_event_alone(reporter: PodReporter, reports: Reports) -> None:
    """It names no pod of another namespace."""
    for behind, named in ((pod("q"), "pod default/q"), (pod("q", namespace="other"), "a pod of another namespace")):
        reporter.report_held(pod("p"), "n", behind)
        what, note = reports.events.pop()
        assert what == "p: WaitingForAllocation"
        assert note.startswith(f"Node n is chosen. The Binding waits, 120 s at most, until {named} has started there:")
    assert not reports.conditions


def test_a_takeover_does_not_flood_with_what_was_so_before(reports: Reports, reporter: PodReporter) -> None:
    """A new leader may find thousands of pods with unknown ids; they do not delay the Events of its own pods."""
    for number in range(5_000):
        reporter.report_unknown_allocation(
            pod(f"p{number}", on="trn1"), "no annotation names its ids", "set schedulerName"
        )
    assert len(reports.events) == OBSERVED_AT_ONCE
    reports.now = 60.0
    reporter.report_unknown_allocation(pod("later", on="trn1"), "no annotation names its ids", "set schedulerName")
    assert reports.events[-1][0] == "later: NeuronAllocationUnknown"


def test_a_rival_of_another_namespace_is_not_named(reports: Reports, reporter: PodReporter) -> None:
    """Whoever may read the Event may not be allowed to see that pod; one of the same namespace is named."""
    reporter.report_double_booking(pod("a"), pod("b"))
    reporter.report_double_booking(pod("a"), pod("b", namespace="secret"))
    assert [note.partition(" claimed by ")[2] for _, note in reports.events] == [
        "default/b; delete one of the two",
        "a pod of another namespace; delete one of the two",
    ]
    assert reports.related == ["default/b"]


def test_what_is_said_about_a_machine(reports: Reports, reporter: PodReporter) -> None:
    """It is an Event, and the condition stays as it is."""
    reporter.report_capacity(pod(), "NeuronCapacityGivenUp", "a sentence")
    assert (reports.events, reports.conditions) == ([("p: NeuronCapacityGivenUp", "a sentence")], [])


def test_a_pod_that_waits_for_its_group_is_not_called_unschedulable(reporter: PodReporter, reports: Reports) -> None:
    """No autoscaler buys for it; there is one Event, though the number of members changes."""
    for count in (2, 3):
        reporter.report_wait(
            pod("p"), "WaitingForGroup", f"Waiting for group default/train: {count} of 4 members exist. ..."
        )
    assert [what for what, _ in reports.conditions] == ["p: WaitingForGroup"] * 2
    assert reports.conditions[-1][1].startswith("Waiting for group default/train: 3 of 4")
    assert [what for what, _ in reports.events] == ["p: WaitingForGroup"]


def test_what_is_said_of_a_group_is_said_again_only_after_something_else(
    reporter: PodReporter, reports: Reports
) -> None:
    """The group is looked at every second; a member that was refused in between says that it waits for the others."""
    text = "Waiting for group default/train: 3 of 4 members exist. ..."
    for _ in range(3):
        reporter.report_wait(pod("p"), "WaitingForGroup", text)
        reports.now += 1000.0
    assert (len(reports.conditions), len(reports.events)) == (1, 1)
    reporter.report_unschedulable(
        pod("p"), "Group default/train needs room for 4 pods at once; 3 fit.", new_node_cannot_help=False
    )
    reporter.report_wait(pod("p"), "WaitingForGroup", text)
    assert reports.conditions[-1] == ("p: WaitingForGroup", text)
