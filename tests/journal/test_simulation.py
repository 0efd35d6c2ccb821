"""What pods would have waited for: a small course by hand, and the journal of the scheduler itself."""

from collections.abc import Iterator

from neuron_scheduler.journal.changes import Change, PutNode, PutPod, RemoveNode, RemovePod
from neuron_scheduler.journal.records import At, Decided, Record, Started
from neuron_scheduler.journal.simulation import course_of, simulate
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import default_profile
from tests.support.builders import node, pod

PROFILES = {"my-scheduler": default_profile("my-scheduler")}


def mine(name: str, devices: int, *, on: str = "", priority: int = 0) -> Pod:
    """Return a pod of ours."""
    return pod(name, devices=devices, on=on, scheduler_name="my-scheduler", priority=priority)


def lived(name: str, devices: int, came: float, left: float) -> Iterator[tuple[float, Record]]:
    """Yield the records of a pod that got node a at once."""
    yield came, Decided(came, mine(name, devices), "a")
    yield came, PutPod(mine(name, devices, on="a"))
    yield left, RemovePod(f"uid-{name}")


def journal(*timed: tuple[float, Record]) -> list[Record]:
    """Return the records in the order of their times."""
    records: list[Record] = [Started(0.0, "1", ())]
    for at, record in sorted(timed, key=lambda each: each[0]):
        records += [At(at), record]
    return records


def at_the_start(*changes: Change) -> Iterator[tuple[float, Record]]:
    """Yield changes of the first second."""
    return ((0.0, change) for change in changes)


def test_a_pod_waits_until_another_one_ends() -> None:
    """The node has 16 devices: the second pod comes at 10 and gets them at 30, when the first ends."""
    records = journal(
        *at_the_start(PutNode(node("a", "trn1.32xlarge"))), *lived("p", 16, 5, 30), *lived("q", 16, 10, 40)
    )
    waits = simulate(course_of(records), PROFILES)
    assert (waits.pods, waits.waited, waits.never, waits.seconds, waits.longest) == (2, 1, 0, 20.0, 20.0)


def test_a_pod_ends_as_long_after_its_start_as_it_did() -> None:
    """The second pod ran for 30 s: after its wait it keeps the third waiting until 60."""
    records = journal(
        *at_the_start(PutNode(node("a", "trn1.32xlarge"))),
        *(*lived("p", 16, 5, 30), *lived("q", 16, 10, 40), *lived("r", 16, 50, 90)),
    )
    waits = simulate(course_of(records), PROFILES)
    assert (waits.pods, waits.waited, waits.seconds) == (3, 2, 30.0)


def test_priority_comes_first() -> None:
    """When the node is free, the pod of higher priority gets it, although it came later."""
    records = journal(
        *at_the_start(PutNode(node("a", "trn1.32xlarge"))),
        *lived("p", 16, 5, 30),
        (10.0, Decided(10.0, mine("low", 16), nodes=1)),
        (20.0, Decided(20.0, mine("high", 16, priority=5), nodes=1)),
        (50.0, RemoveNode("none")),
    )
    waits = simulate(course_of(records), PROFILES)
    assert (waits.waited, waits.never, waits.seconds, waits.longest) == (2, 1, 10.0 + 40.0, 40.0)


def test_pods_of_others_hold_what_they_held() -> None:
    """A pod that another scheduler has placed stays where it was."""
    records = journal(
        *at_the_start(PutNode(node("a", "trn1.32xlarge")), PutPod(pod("x", devices=16, on="a", ids=range(16)))),
        (10.0, Decided(10.0, mine("p", 1), nodes=1)),
        (25.0, RemovePod("uid-x")),
        (30.0, RemoveNode("none")),
    )
    waits = simulate(course_of(records), PROFILES)
    assert (waits.waited, waits.never, waits.seconds) == (1, 0, 15.0)


def test_another_profile_makes_another_course() -> None:
    """A small pod beside another one leaves a whole node free for a large pod; on the oldest node it does not."""
    nodes = at_the_start(
        PutNode(node("a", "trn1.32xlarge")),
        PutNode(node("b", "trn1.32xlarge")),
        PutPod(pod("x", devices=1, on="b", ids=[0])),
    )
    records = journal(*nodes, *lived("small", 1, 5, 100), *lived("large", 16, 50, 90), (120.0, RemoveNode("none")))
    packed = simulate(course_of(records), PROFILES)
    oldest = simulate(course_of(records), {"my-scheduler": default_profile("my-scheduler", preferences=[])})
    assert (packed.waited, oldest.waited, oldest.seconds) == (0, 1, 50.0)


def test_no_other_names() -> None:
    """Pods whose scheduler is not simulated are left out."""
    records = journal(*at_the_start(PutNode(node("a", "trn1.32xlarge"))), *lived("p", 16, 5, 30))
    assert simulate(course_of(records), {}).pods == 0
