"""Which Bindings wait for another pod of their node, what ends their wait, and what happens to them meanwhile."""

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.controllers import allocate_fence
from neuron_scheduler.controllers.allocate_fence import LONGEST, PERIOD, NodeBindings, WaitingBinding
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.writes.binder import Bound, Refused
from neuron_scheduler.model.annotations import NEURON_ALLOC_TIME, NEURON_ALLOCATED
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod, assigned_pod
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.scheduling.queue.places import Place
from tests.controllers.test_binding_cycle import HANG, IN_DOUBT, World, pending
from tests.support.builders import node, pod
from tests.support.device_plugin import NodeAgent
from tests.support.loops import watches_of
from tests.support.patience import PATIENCE
from tests.support.queueing import new_queue

SECOND = 1_000_000_000
TURNS = 60  # of the event loop, more than anything here takes


@attrs.define(eq=False)
class Site(World):
    """
    A world with one node, and a watch that shows what happens to its pods.

    Attributes:
        logged: messages of the fence, with their values.
    """

    handler: WatchHandler[Pod] = attrs.field(init=False)
    nodes: WatchHandler[Node] = attrs.field(init=False)
    logged: list[tuple[str, Mapping[str, Any]]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        fence, clock = self.scheduler.binding_cycle.fence, self.scheduler.clock
        watches = watches_of(self.cluster, self.queue, fence, clock=clock, pod_list=self.pod_list)
        self.handler, self.nodes = watches.of(PODS), watches.of(NODES)

    @property
    def waiting(self) -> int:
        return self.scheduler.binding_cycle.fence.waiting_count

    def bound(self, name: str, **changes: Any) -> Pod:
        """Return a pod as it is after its Binding."""
        sent = self.sent[self.tried.index(name)]
        pod_info = self.cluster.pod_info(f"uid-{name}")
        assert pod_info is not None
        return attrs.evolve(pod_info.pod, allocation=sent, **changes)

    def tell(self, name: str, **changes: Any) -> None:
        self.handler.on_updated(pending(name), self.bound(name, **changes))

    def change_node(self, **changes: Any) -> None:
        """Let the watch show another state of the node."""
        before = self.cluster.node("n")
        assert before is not None
        wanted = {"instance_type": "trn1.32xlarge"} | changes
        fields = {name: wanted.pop(name) for name in ("neuron_fault", "refusal", "allocatable") if name in wanted}
        after = node("n", wanted.pop("instance_type"), pods=1000, **wanted)
        allocatable = {**after.allocatable, **fields.pop("allocatable", {})}
        self.nodes.on_updated(before.node, attrs.evolve(after, allocatable=allocatable, **fields))

    async def pass_time(self, seconds: float) -> None:
        """Advance the clocks, and let the fence look at them."""
        self.now += seconds
        self.wall += int(seconds * SECOND)
        list(self.scheduler.binding_cycle.fence.expire())
        await self.settle()

    async def settle(self) -> list[str]:
        """Let all tasks run; return the pods whose Bindings were sent, in order."""
        for _ in range(TURNS):
            await anyio.lowlevel.checkpoint()
        return self.tried


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the list to which the fence's log lines go."""
    lines = list[tuple[str, Mapping[str, Any]]]()

    @attrs.define
    class Log:
        def info(self, message: str, v: int = 0, **values: Any) -> None:
            assert v == 2
            lines.append((message, values))

        def warning(self, message: str, **values: Any) -> None:
            lines.append((message, values))

    monkeypatch.setattr(allocate_fence, "log", Log())
    return lines


@asynccontextmanager
async def at_work(**settings: Any) -> AsyncIterator[Site]:
    """Run a scheduler beside the block."""
    site = Site(**settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(site.scheduler.run)
        yield site
        tasks.cancel_scope.cancel()


async def test_pods_that_the_plugin_could_confuse_are_bound_one_after_the_other() -> None:
    """Both are decided at once and hold their devices; the second Binding is sent when the first pod has started."""
    async with at_work() as site:
        site.add("b", "a", devices=4)
        assert await site.settle() == ["b"]
        assert (site.waiting, site.cluster.assumed_count) == (1, 2)
        node_info = site.cluster.node("n")
        assert node_info is not None
        assert node_info.free_cores.bit_count() == 16
        site.tell("b")
        assert await site.settle() == ["b"], "it is bound, which is not enough"
        site.tell("b", admitted=True)
        assert await site.settle() == ["b", "a"]
        assert not site.waiting


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"devices": 1}, {"devices": 1}),
        ({"devices": 4}, {"devices": 1}),
        ({"devices": 1}, {"devices": 4}),
        ({"devices": 4}, {"devices": 8}),
        ({"devices": 8}, {"cores": 8}),
        ({"devices": (1, 1)}, {"devices": 4}),
        ({"devices": 4}, {}),
    ],
    ids=str,
)
async def test_what_cannot_be_confused_does_not_wait(first: Any, second: Any) -> None:
    """One unit, other amounts, the other unit, pods without Neuron."""
    async with at_work() as site:
        site.add("first", **first)
        await site.settle()
        site.add("second", **second)
        assert await site.settle() == ["first", "second"]


async def test_without_the_fence_nothing_waits() -> None:
    """The option turns it off; NEURON_ALLOC_TIME is given out anyway."""
    async with at_work(fenced=False) as site:
        site.add("b", "a", devices=4)
        assert await site.settle() == ["b", "a"]
        assert [sent[NEURON_ALLOC_TIME] for sent in site.sent] == ["1", "2"]


async def test_times_grow_with_every_binding_of_a_node() -> None:
    """Also if the clock stands still, after a time in the future, and for pods that do not wait."""
    async with at_work() as site:
        foreign = pod("foreign", devices=1, ids=(15,), on="n", allocation={NEURON_ALLOC_TIME: "41"})
        site.handler.on_added(foreign)
        site.add("one", "two", devices=1)
        site.add("four", devices=4)
        await site.settle()
        assert [sent[NEURON_ALLOC_TIME] for sent in site.sent] == ["42", "43", "44"]
        site.wall = 1000
        site.add("three", devices=1)
        await site.settle()
        site.tell("three")
        node_info = site.cluster.node("n")
        assert node_info is not None
        assert node_info.last_alloc_time == 1000


async def test_a_doubt_holds_up_its_own_amount_only() -> None:
    """It may take long, and the plugin does not confuse other amounts."""
    async with at_work(outcomes={"four": IN_DOUBT}, pause=3600.0) as site:
        site.add("four", devices=4)
        await site.settle()
        site.add("eight", devices=8)
        site.add("five", devices=4)
        assert await site.settle() == ["four", "eight"]
        await site.pass_time(LONGEST)
        assert await site.settle() == ["four", "eight", "five"]


@pytest.mark.parametrize("outcome", [Refused(403, "no"), Refused(409, "bound")], ids=str)
async def test_a_binding_that_fails_lets_the_next_through(outcome: Refused) -> None:
    """Its pod has no node."""
    async with at_work(outcomes={"b": outcome}) as site:
        site.add("b", "a", devices=4)
        assert (await site.settle())[:2] == ["b", "a"]


async def test_no_pod_is_waited_for_longer_than_two_minutes(logged: list[tuple[str, Mapping[str, Any]]]) -> None:
    """They are sent one after the other; the log names the pod that never started, once."""
    async with at_work() as site:
        site.add("c", "b", "a", devices=4)
        await site.settle()
        await site.pass_time(LONGEST - 1)
        assert site.tried == ["c"]
        await site.pass_time(1)
        assert site.tried == ["c", "b"]
        await site.pass_time(LONGEST)
        assert site.tried == ["c", "b", "a"]
        waiting = "Waiting for another pod's Neuron allocation before binding"
        assert logged[:2] == [
            (waiting, {"pod": "default/b", "node": "n", "behind": "default/c"}),
            (waiting, {"pod": "default/a", "node": "n", "behind": "default/b"}),
        ]
        assert [values["pod"] for _, values in logged[2:]] == ["default/c", "default/b"]
        assert logged[2][0].startswith("Pod has not started")


async def test_a_pod_that_waits_for_long_is_told_once() -> None:
    """Not one that waits as long as an admission usually takes; the Event names the pod in front of it."""
    async with at_work() as site:
        site.add("c", "b", "a", devices=4)
        await site.settle()
        await site.pass_time(PERIOD - 1)
        assert site.told == []
        for _ in range(3):
            await site.pass_time(PERIOD)
        assert site.told == [("b", "n", "c"), ("a", "n", "b")]


async def test_the_two_minutes_count_from_the_answer() -> None:
    """A Binding that was in doubt may have succeeded late."""
    async with at_work(outcomes={"b": IN_DOUBT}) as site:
        site.add("b", "a", devices=4)
        with anyio.fail_after(PATIENCE):
            while site.count("b") < 3:
                await anyio.lowlevel.checkpoint()
        site.now += LONGEST / 2
        site.outcomes["b"] = Bound()
        await site.settle()
        await site.pass_time(LONGEST - 1)
        assert "a" not in site.tried
        await site.pass_time(1)
        assert "a" in site.tried


@pytest.mark.parametrize(
    ("age", "waits"), [(10, LONGEST - 10), (200, 0), (-1000, LONGEST)], ids=["young", "old", "from the future"]
)
async def test_pods_that_others_bound_are_waited_for(age: int, waits: float) -> None:
    """For two minutes from their NEURON_ALLOC_TIME at most; a new leader sees its predecessor's pods in this way."""
    async with at_work(wall=10_000 * SECOND) as site:
        annotations = {NEURON_ALLOC_TIME: str(site.wall - age * SECOND), NEURON_ALLOCATED: "false"}
        site.handler.on_added(pod("foreign", devices=4, ids=range(4), on="n", allocation=annotations))
        site.add("a", devices=4)
        await site.settle()
        if waits:
            await site.pass_time(waits - 1)
            assert not site.tried
            await site.pass_time(1)
        assert site.tried == ["a"]


async def test_a_pod_that_waits_and_is_deleted_is_forgotten() -> None:
    """Nothing is sent for it, and the next pod does not wait for it."""
    async with at_work() as site:
        site.add("c", "b", "a", devices=4)
        await site.settle()
        site.handler.on_deleted(pending("b", devices=4))
        assert await site.settle() == ["c"]
        assert (site.waiting, site.cluster.pod_count, "uid-b" in site.queue) == (1, 2, False)
        site.tell("c", admitted=True)
        assert await site.settle() == ["c", "a"]


async def test_a_pod_that_waits_and_changes_is_decided_again_at_once() -> None:
    """Only if the change matters for a decision; otherwise it keeps its turn."""
    async with at_work() as site:
        site.add("b", "a", devices=4)
        await site.settle()
        site.handler.on_updated(pending("a", devices=4), pending("a", devices=4, annotations_size=100))
        await site.settle()
        queued = site.queue.get("uid-a")
        assert queued is not None
        assert (site.waiting, queued.attempts) == (1, 1)
        site.handler.on_updated(pending("a", devices=4), pending("a", devices=4, labels={"a": "b"}))
        await site.settle()
        assert (site.waiting, queued.attempts, site.cluster.pod_count) == (1, 2, 2)


async def test_a_binding_that_waited_is_looked_at_again_before_it_is_sent() -> None:
    """Also where nothing has told the fence of what came between: here, a pod with unknown ids."""
    async with at_work() as site:
        site.add("b", "a", devices=4)
        await site.settle()
        site.cluster.put_pod(pod("unknown", devices=1, on="n"))
        site.tell("b", admitted=True)
        assert await site.settle() == ["b"]
        assert not site.waiting


@pytest.mark.parametrize(
    "changes",
    [
        {"unschedulable": True},
        {"taints": (Taint("node.kubernetes.io/unreachable", Effect.NO_SCHEDULE),)},
        {"taints": (Taint("drained", Effect.NO_EXECUTE),)},
        {"neuron_fault": "NeuronHealth"},
        {"refusal": "it cannot be read"},
        {"allocatable": {"aws.amazon.com/neuron": 0}},
        {"instance_type": "trn1.2xlarge"},
    ],
    ids=["cordon", "dead", "drained", "unhealthy", "unreadable", "no device plugin", "another machine"],
)
async def test_a_node_that_takes_no_more_pods_lets_go_at_once(changes: dict[str, Any]) -> None:
    """Pods that wait are scheduled again at once if the node would reject them or is drained."""
    async with at_work() as site:
        site.add("b", "a", "c", devices=4)
        await site.settle()
        assert site.waiting == 2
        site.change_node(**changes)
        await site.settle()
        assert (site.waiting, site.queue.count(Place.BACKOFF), site.tried) == (0, 2, ["b"])
        assert site.cluster.assumed_count == 1


async def test_a_node_that_is_gone_lets_go_at_once_and_is_forgotten() -> None:
    """Pods that wait are scheduled again; a node that joins under its name is a new one to the fence."""
    async with at_work() as site:
        site.add("b", "a", devices=4)
        await site.settle()
        site.nodes.on_deleted(node("n", "trn1.32xlarge", pods=1000))
        await site.settle()
        assert (site.waiting, site.tried, site.cluster.is_assumed("uid-a")) == (0, ["b"], False)
        assert site.scheduler.binding_cycle.fence._nodes == {}  # only memory shows it otherwise


@pytest.mark.parametrize("fields", [{"devices": 1}, {"devices": 9, "ids": range(7, 16)}, {"cpu": 191_501}], ids=str)
async def test_who_waits_is_decided_again_where_another_pod_takes_its_share(fields: dict[str, Any]) -> None:
    """At once, not after two minutes: its ids may be in use, they are, or the kubelet would reject it."""
    async with at_work() as site:
        site.add("b", "a", devices=4, cpu=250)
        await site.settle()
        assert site.waiting == 1
        site.handler.on_added(pod("foreign", on="n", **fields))
        await site.settle()
        assert (site.waiting, site.queue.count(Place.BACKOFF), site.tried) == (0, 1, ["b"])


@pytest.mark.parametrize(
    ("cpu", "left"), [(191_000, ["a", "b", "c"]), (191_001, ["a", "b"]), (191_251, ["b"]), (191_501, [])]
)
async def test_who_has_the_lowest_priority_gives_way(cpu: int, left: list[str]) -> None:
    """Of several pods with this priority the one that was decided last; the others keep their turn."""
    async with at_work() as site:
        site.add("first", devices=4, cpu=250)
        await site.settle()
        for name, priority in (("a", 0), ("b", 100), ("c", 0)):
            site.add(name, devices=4, cpu=250, priority=priority)
            await site.settle()
        site.handler.on_added(pod("foreign", on="n", cpu=cpu))
        await site.settle()
        assert [name for name in ("a", "b", "c") if site.cluster.pod_info(f"uid-{name}") is not None] == left
        assert (site.waiting, site.tried) == (len(left), ["first"])


async def test_a_stop_does_not_wait_at_the_fence() -> None:
    """Pods that wait there are not bound: the next leader decides them."""
    site = Site()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(site.scheduler.run)
            site.add("b", "a", devices=4)
            await site.settle()
            site.scheduler.stop()
    assert site.tried == ["b"]
    assert (site.waiting, site.cluster.pod_count, "uid-a" in site.queue) == (0, 1, True)


@pytest.mark.parametrize("fenced", [True, False])
async def test_no_device_is_used_by_two_pods(fenced: bool) -> None:
    """In whatever order the kubelet admits pods and they end; without the fence it happens."""
    shared = swapped = 0
    for seed in range(12):
        agent = await _history(random.Random(seed), fenced=fenced)
        shared, swapped = shared + agent.shared, swapped + agent.swapped
    assert (shared == 0, swapped == 0) == (fenced, fenced)


async def _history(dice: random.Random, *, fenced: bool, pods: int = 30) -> NodeAgent:
    """Add pods, let them start in any order and end; return what the plugin did."""
    async with at_work(fenced=fenced, queue=new_queue(initial_backoff=0.001, max_backoff=0.001)) as site:
        site.cluster.remove_node("n")
        site.cluster.put_node(node("n", "inf2.48xlarge", pods=1000))
        agent, seen, came = NodeAgent(12), 0, 0
        while came < pods or agent.unstarted or agent.uses:
            match dice.randrange(3):
                case 0 if came < pods:
                    amount = dice.choice([1, 2, 2, 3, 4, 4, (2, 4), (2, 2), (1, 2), 12])
                    site.add(f"p{came}", devices=amount, priority=dice.randrange(2))
                    came += 1
                case 1 if agent.unstarted:
                    site.handler.on_updated(pending("any"), agent.admit(dice.choice(agent.unstarted).uid))
                case 2 if agent.uses:
                    uid = dice.choice(sorted(agent.uses))
                    agent.end(uid)
                    pod_info = site.cluster.pod_info(uid)
                    assert pod_info is not None
                    site.handler.on_deleted(pod_info.pod)
            site.now += 0.01
            await site.settle()
            for name, sent in list(zip(site.tried, site.sent, strict=True))[seen:]:
                seen += 1
                pod_info = site.cluster.pod_info(f"uid-{name}")
                assert pod_info is not None
                bound = assigned_pod(pod_info.pod, "n", sent)
                agent.bind(bound)
                site.handler.on_updated(pending("any"), bound)
        return agent


async def test_a_pod_gives_its_place_up_as_long_as_it_waits() -> None:
    """Its devices are free at once, and it is tried again; a pod whose Binding was sent keeps its place."""
    async with at_work() as site:
        site.add("b", "a", "c", devices=4)
        await site.settle()
        assert not site.scheduler.binding_cycle.fence.give_up("uid-b")
        assert not site.scheduler.binding_cycle.fence.give_up("uid-unknown")
        assert site.scheduler.binding_cycle.fence.give_up("uid-a")
        assert (site.waiting, site.cluster.pod_info("uid-a")) == (1, None)
        assert site.queue.count(Place.BACKOFF) == 1
        site.tell("b", admitted=True)
        assert await site.settle() == ["b", "c"]


@pytest.mark.parametrize("event", ["clock", "watch", "answer", "doubt"])
async def test_an_exception_when_the_line_moves_costs_one_pod(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods behind it go on waiting or are sent, and no worker ends."""
    async with at_work(outcomes={"first": HANG if event in ("answer", "doubt") else Bound()}) as site:
        site.add("first", devices=4)
        await site.settle()
        site.add("bad", "good", devices=4)
        await site.settle()
        assert site.waiting == 2
        fence: Any = site.scheduler.binding_cycle.fence
        predecessor = NodeBindings.predecessor

        def raising(bindings: NodeBindings, binding: WaitingBinding) -> Any:
            if binding.commitment.pod.name == "bad":
                raise RuntimeError("trap")
            return predecessor(bindings, binding)

        monkeypatch.setattr(NodeBindings, "predecessor", raising)
        commitment = next(iter(fence._waiting.values())).commitment
        first = attrs.evolve(commitment, pod=pending("first", devices=4))
        if event == "clock":
            await site.pass_time(LONGEST + 1)
        elif event == "watch":
            site.tell("first", admitted=True)
        elif event == "answer":
            fence.on_outcome(first, Refused(500, "no"))
        else:
            fence.on_delayed(first)
        await site.settle()
        assert site.cluster.pod_info("uid-bad") is None
        assert site.surprises["allocate fence"] == 1
        assert "uid-bad" in site.queue
        assert "good" in site.tried or site.waiting == 1
