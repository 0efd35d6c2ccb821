"""A pod between its decision and the outcome of its Binding: cluster, queue and reports to its owner."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.preemption_executor import PostFilter
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.writes.binder import Binding, BindOutcome, Bound, Fenced, Gone, InDoubt, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.builders import node, pod
from tests.support.loops import loop_of
from tests.support.patience import PATIENCE
from tests.support.queueing import new_queue
from tests.support.storage import claim, stored

IN_DOUBT = "in doubt"
HANG = "hang"
WORKERS = 2


@attrs.define(eq=False)
class World:
    """
    A cluster, a queue, and stand-ins for all parts that the scheduler calls.

    Attributes:
        outcomes: of the Bindings of pods whose names begin so, by what the name begins with; others are bound.
        breaks: the methods that raise an exception, and for pods with which prefix of their names.
        tried: pods by the order of their Bindings' tries.
        sent: their annotations, in that order.
        meanwhile: happens while volumes are bound.
        fenced: whether Bindings wait where the device plugin could confuse two pods.
    """

    outcomes: dict[str, Any] = attrs.field(factory=dict)
    breaks: dict[str, str] = attrs.field(factory=dict)
    pause: float = 0.0
    now: float = 0.0
    leads: bool = True
    tried: list[str] = attrs.field(factory=list)
    sent: list[Mapping[str, str]] = attrs.field(factory=list)
    fenced: bool = True
    wall: int = 1
    reports: list[tuple[str, str]] = attrs.field(factory=list)
    told: list[tuple[str, str, str]] = attrs.field(factory=list)
    surprises: Counter[str] = attrs.field(factory=Counter)
    prepared: int = 0
    meanwhile: Callable[[], object] = tuple
    cluster: Cluster = attrs.field(
        factory=lambda: stored([node("n", "trn1.32xlarge", pods=1000)], claim(class_name="gp3"))
    )
    queue: SchedulingQueue = attrs.field(factory=new_queue)
    pod_list: PodList = attrs.field(factory=PodList)
    scheduler: SchedulingLoop = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        world: Any = self
        self.scheduler = loop_of(
            cluster=self.cluster,
            queue=self.queue,
            profiles={"my-scheduler": default_profile("my-scheduler")},
            parts=world,
            executor=lambda _fence: world,
            clock=lambda: self.now,
            pod_list=self.pod_list,
            wall_clock=lambda: self.wall,
            may_bind=lambda: self.leads,
            errors=UnexpectedErrors(self._surprised),
            concurrency=WORKERS,
            fenced=self.fenced,
        )

    def add(self, *names: str, namespace: str = "default", **preferred: Any) -> None:
        """Add pods to the queue."""
        for name in names:
            self.queue.add(pending(name, namespace=namespace, **preferred), self.now)
        self.scheduler.wake_up.set()

    def count(self, name: str) -> int:
        return self.tried.count(name)

    def _surprised(self, task: str) -> None:
        self.surprises[task] += 1

    def _break(self, part: str, about: Pod) -> None:
        prefix = self.breaks.get(part)
        if prefix is not None and about.name.startswith(prefix):
            raise RuntimeError(part)

    # the binder

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome | InDoubt:
        """Try as the outcomes say."""
        self._break("bind", pod)
        binding = Binding(pod=pod, path="", body=b"", node_name=node_name, annotations=annotations,
                          backoff=Backoff(lambda: 0.0))  # fmt: skip
        return await self.try_again(binding)

    async def try_again(self, binding: Binding, lost: BindOutcome | None = None) -> BindOutcome | InDoubt:
        """Try again, or find no node in the pod."""
        if lost is not None:
            return lost
        name = binding.pod.name
        self.tried.append(name)
        self.sent.append(binding.annotations)
        binding.tries += 1
        await anyio.lowlevel.checkpoint()
        outcome = next((planned for prefix, planned in self.outcomes.items() if name.startswith(prefix)), Bound())
        if outcome == HANG:
            await anyio.sleep_forever()
        if outcome == IN_DOUBT:
            binding.problem = "503"
            return InDoubt(binding, self.pause)
        assert not isinstance(outcome, str)
        result: BindOutcome = outcome
        return result

    # volumes

    @property
    def is_released(self) -> bool:
        """Whether no node is assumed to be selected for the claim."""
        known = self.cluster.volumes.claim("default/data")
        assert known is not None
        return known.selected_node is None

    async def prepare(self, pod: Pod, plan: VolumePlan) -> BindOutcome | None:
        """Bind the volumes at once."""
        assert plan.node_name
        assert not self.is_released
        self.prepared += 1
        await anyio.lowlevel.checkpoint()
        self._break("prepare", pod)
        self.meanwhile()
        return None

    # the preemption executor

    async def run(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        task_status.started()

    def stop(self) -> None:
        """Do nothing."""

    def adopt(self, queued: Any, profile: Any) -> None:
        """Adopt nothing."""
        assert profile
        self._break("adopt", queued.pod)

    def recheck(self, node_name: str) -> None:
        """Break for any pod: it comes after the assumption."""
        assert node_name
        if "recheck" in self.breaks:
            raise RuntimeError("recheck")

    async def adopt_all(self, *_: object) -> None:
        """Adopt no nomination."""

    def adopt_each(self, *_: object) -> Iterator[None]:
        """Adopt no nomination of a group's members."""
        return iter(())

    async def post_filter_group(self, *_: object) -> Mapping[str, PostFilter]:
        """Find no victims."""
        return {}

    async def post_filter(self, queued: Any, refused: Any, profile: Any) -> PostFilter:
        """Preempt nobody."""
        assert refused
        assert profile
        self._break("post_filter", queued.pod)
        return PostFilter()

    # the reporter

    def report_scheduled(self, pod: Pod, node_name: str, placement: Placement | None) -> None:
        """Remember it."""
        assert placement is None or placement.ids
        self._break("scheduled", pod)
        self.reports.append((pod.name, node_name))

    def report_unschedulable(self, pod: Pod, message: str, **_: Any) -> None:
        """Remember it."""
        self._break("unschedulable", pod)
        self.reports.append((pod.name, message))

    def report_failure(self, pod: Pod, message: str) -> None:
        """Remember it."""
        self._break("failed", pod)
        self.reports.append((pod.name, message))

    def report_held(self, pod: Pod, node_name: str, behind: Pod) -> None:
        """Remember it."""
        self.told.append((pod.name, node_name, behind.name))

    def report_doubt(self, pod: Pod, message: str) -> None:
        """Remember it."""
        self._break("in_doubt", pod)
        self.reports.append((pod.name, message))

    def withdraw(self, uid: str) -> None:
        assert uid


def pending(name: str, **preferred: Any) -> Pod:
    return pod(name, scheduler_name="my-scheduler", **preferred)


async def until(met: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        while not met():
            await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    """Run the scheduler beside the block; it must still run at its end."""
    ended = False

    async def run() -> None:
        nonlocal ended
        await world.scheduler.run()
        ended = True

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield
        assert not ended
        tasks.cancel_scope.cancel()


async def test_doubts_are_told_now_and_then() -> None:
    """After 4, 8 and 16 tries, with a message that says what happens."""
    world = World(outcomes={"bad": IN_DOUBT})
    async with running(world):
        world.add("bad")
        await until(lambda: world.count("bad") > 20)
    assert [message.split(";")[0] for _, message in world.reports] == [
        f"Binding to n has no definite outcome after {tries} tries" for tries in (4, 8, 16)
    ]
    assert all(message.endswith(": 503") for _, message in world.reports)


async def test_namespaces_take_turns_with_their_doubts() -> None:
    """Many doubts of one namespace delay the doubt of another one by a turn, not by all their tries."""
    world = World(outcomes={"bad": IN_DOUBT, "poor": IN_DOUBT})
    async with running(world):
        world.add(*(f"bad{number}" for number in range(200)))
        await until(lambda: world.queue.count(Place.ACTIVE) == 0)
        world.add("poor", namespace="other")
        await until(lambda: world.count("poor") == 1)
        before = len(world.tried)
        await until(lambda: world.count("poor") == 10)
        assert len(world.tried) - before < 200


async def test_a_namespace_whose_bindings_hang_is_served_by_those_who_retry() -> None:
    """Once many of its Bindings are in doubt, its next ones hold none of the workers that all namespaces share."""
    world = World(outcomes={"bad": IN_DOUBT}, pause=3600.0)
    async with running(world):
        world.add(*(f"bad{number}" for number in range(16)))
        await until(lambda: len(world.tried) == 16)
        world.outcomes["slow"] = HANG
        world.add(*(f"slow{number}" for number in range(20)))
        await until(lambda: len(world.tried) == 20)
        world.add("good", namespace="other")
        await until(lambda: ("good", "n") in world.reports)


async def test_what_happens_while_volumes_are_bound_counts() -> None:
    """A pod whose devices another scheduler's pod may have got meanwhile is decided again, and its plan is released."""
    world = World()
    world.meanwhile = lambda: world.cluster.put_pod(pod("unknown", devices=1, on="n"))
    async with running(world):
        world.add("p", devices=4, volume_claims=("data",))
        await until(lambda: world.prepared == 1 and world.is_released)
        assert (world.tried, world.cluster.assumed_count) == ([], 0)


@pytest.mark.parametrize("anew", ["", "inf1.6xlarge"])
async def test_a_binding_is_not_sent_again_to_another_machine(anew: str) -> None:
    """Its node is gone, or made anew with the same name: the pod, which has no node, is decided again."""
    world = World(outcomes={"p": IN_DOUBT})
    async with running(world):
        world.add("p", devices=8)
        await until(lambda: world.count("p") > 2)
        world.cluster.remove_node("n")
        if anew:
            world.cluster.put_node(node("n", anew, uid="another"))
        tries = world.count("p")
        await until(lambda: world.cluster.node_of("uid-p") is None)
        assert world.count("p") <= tries + 1  # one may have been under way


async def test_what_happens_while_a_pod_waits_behind_doubts_counts() -> None:
    """The same, for a pod of a namespace with many Bindings in doubt."""
    world = World(outcomes={"bad": IN_DOUBT}, pause=3600.0)
    async with running(world):
        world.add(*(f"bad{number}" for number in range(16)))
        await until(lambda: len(world.tried) == 16)
        world.add("late", devices=4)
        await until(lambda: world.cluster.is_assumed("uid-late"))
        world.cluster.put_pod(pod("unknown", devices=1, on="n"))
        await until(lambda: not world.cluster.is_assumed("uid-late"))
        assert world.count("late") == 0


@pytest.mark.parametrize("outcome", [Gone(), Fenced(), Refused(403, "no")], ids=str)
async def test_what_is_not_bound_gives_its_place_back(outcome: BindOutcome) -> None:
    """Also if the outcome was in doubt before; a pod that waits for the place is woken."""
    world = World(outcomes={"p": IN_DOUBT})
    async with running(world):
        world.add("p", devices=4)
        await until(lambda: world.count("p") > 2)
        world.add("whole", devices=16)
        await until(lambda: [name for name, _ in world.reports if name == "whole"] != [])
        world.outcomes["p"] = outcome
        await until(lambda: ("whole", "n") in world.reports)
        assert world.cluster.node_of("uid-p") is None
        assert ("uid-p" in world.queue) is not isinstance(outcome, Gone)


async def test_a_pod_that_must_change_first_waits_for_that() -> None:
    """The failure is reported; the pod is tried again after five minutes or when its annotations get shorter."""
    world = World(outcomes={"p": Refused(413, "too large", until_changed=True)})
    async with running(world):
        world.add("p")
        await until(lambda: ("p", "too large") in world.reports)
        assert world.queue.count(Place.UNSCHEDULABLE) == 1
        world.now += 200.0
        world.add("other")
        await until(lambda: ("other", "n") in world.reports)
        assert world.count("p") == 1
        world.queue.add(pending("p", annotations_size=5), world.now)
        assert world.count("p") == 1
        world.queue.add(pending("p", annotations_size=4), world.now)
        world.scheduler.wake_up.set()
        await until(lambda: world.count("p") == 2)


async def test_nothing_is_written_for_a_pod_whose_annotations_are_too_large() -> None:
    """Its volumes and claims stay as they are; the API server would refuse the Binding."""
    world = World(breaks={"prepare": "p"})
    async with running(world):
        world.add("p", volume_claims=("data",), annotations_size=(256 << 10) + 1)
        await until(lambda: bool(world.reports))
        assert "262144 are allowed" in world.reports[0][1]
        assert world.queue.count(Place.UNSCHEDULABLE) == 1
    assert not world.surprises


async def test_a_stop_waits_for_doubts() -> None:
    """The loop ends when the last of them has a definite outcome."""
    world = World(outcomes={"bad": IN_DOUBT})
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.scheduler.run)
            world.add("bad")
            await until(lambda: world.count("bad") > 2)
            world.scheduler.stop()
            await until(lambda: world.count("bad") > 10)
            world.outcomes["bad"] = Bound()
    assert ("bad", "n") in world.reports


@pytest.mark.parametrize("part", ["adopt", "recheck", "prepare", "bind", "post_filter", "unschedulable"])
async def test_an_exception_in_an_attempt_is_that_pods_error(part: str) -> None:
    """It is counted and reported, the pod backs off, nothing stays assumed, and the loop goes on."""
    devices = 17 if part in ("post_filter", "unschedulable") else 1
    world = World(breaks={part: "p"})
    async with running(world):
        world.cluster.nominate("n", Nomination(pending("elsewhere")))
        claims = ("data",) if part == "prepare" else ()
        world.add("p", devices=devices, volume_claims=claims, nominated_node_name="n" if part == "adopt" else "")
        await until(lambda: bool(world.reports))
        assert world.reports == [("p", world.reports[0][1])]
        assert world.reports[0][1].startswith("unexpected error in ")
        assert f"RuntimeError: {part}" in world.reports[0][1]
        assert world.surprises.total() == 1
        assert (world.cluster.pod_count, world.cluster.assumed_count) == (0, 0)
        assert world.queue.count(Place.BACKOFF) == 1
        world.breaks.clear()
        world.add("next", devices=16)
        await until(lambda: ("next", "n") in world.reports)
        assert (world.prepared, world.is_released) == (part == "prepare", True)


async def test_an_exception_in_telling_a_doubt_keeps_the_doubt() -> None:
    """The Binding is sent again as before."""
    world = World(breaks={"in_doubt": "p"}, outcomes={"p": IN_DOUBT})
    async with running(world):
        world.add("p")
        await until(lambda: world.count("p") > 10)
        assert world.surprises["binding"] == 2
        assert world.cluster.is_assumed("uid-p")


@pytest.mark.parametrize("part", ["scheduled", "failed"])
async def test_an_exception_in_telling_ends_nothing(part: str) -> None:
    """A bound pod stays bound; a pod whose failure cannot be reported is tried again anyway."""
    outcome = Bound() if part == "scheduled" else Refused(403, "no")
    world = World(breaks={part: "p"}, outcomes={"p": outcome})
    async with running(world):
        world.add("p")
        await until(lambda: bool(world.surprises))
        assert ("uid-p" in world.queue) is (part == "failed")
        assert world.cluster.is_assumed("uid-p") is (part == "scheduled")
        assert world.queue.count(Place.IN_FLIGHT) == 0


async def test_the_start_waits_for_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The indexes that only a refusal reads are not built before the first Binding."""
    world = World()
    monkeypatch.setattr("neuron_scheduler.scheduling.cycle.index_warmup.IndexWarmup.prepare_refusal", lambda *_: 1 / 0)
    world.add("p")
    await world.scheduler.attempts.warm_up()
    assert not world.surprises


async def test_an_exception_in_the_warm_up_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod is prepared for when it is tried."""
    world = World()
    monkeypatch.setattr("neuron_scheduler.scheduling.cycle.index_warmup.IndexWarmup.prepare", lambda *_: 1 / 0)
    world.add("p")
    await world.scheduler.attempts.warm_up()
    assert world.surprises["warm-up"] == 2
