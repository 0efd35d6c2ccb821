"""
A model of a cluster in which machines are asked for: deeds in any order, on the real plan, table and writer.

An API server with pods and nodes, watches that show its changes late, requests that are answered late, or not, an
autoscaler that counts, and a scheduler that dies. Nothing happens but by a deed, so a seed is a history.
"""

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import anyio
import anyio.lowlevel
import attrs
import msgspec
from anyio.abc import TaskGroup

from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU, NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from tests.capacity.replica import NAMESPACE, SEEN, Scheduler
from tests.support.builders import node
from tests.support.counting_autoscaler import InstanceType, Machine, Wish, bought

TRN1: Final = "trn1.32xlarge"
NOT_READY: Final = (Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE),)
NODE_CPU: Final = 128_000
Event = Callable[[Scheduler], None]


@attrs.define(eq=False)
class Call:
    """A request to the API server under way; `deed` changes the server, and `answer` ends the request."""

    deed: Callable[..., Any]
    done: anyio.Event = attrs.field(factory=anyio.Event)
    answer: Any = None


@attrs.define(eq=False)
class Model:
    """
    All of it.

    Attributes:
        strict: every request is answered, and no leader dies.
        loses: pods are deleted, and machines as well.
        calm: from now on nothing goes wrong any more.
        shown: events of pods and of nodes that the watches have not shown yet.
        bought: machines so far.
    """

    dice: Random
    tasks: TaskGroup
    strict: bool = False
    loses: bool = False
    now: float = 0.0
    pods: dict[str, Pod] = attrs.field(factory=dict)
    nodes: dict[str, Node] = attrs.field(factory=dict)
    shown: dict[str, deque[Event]] = attrs.field(factory=lambda: {"pods": deque(), "nodes": deque()})
    calls: list[Call] = attrs.field(factory=list, init=False)
    late: list[Callable[..., Any]] = attrs.field(factory=list, init=False)
    coming: list[Machine] = attrs.field(factory=list, init=False)
    joining: list[str] = attrs.field(factory=list, init=False)
    bought: int = 0
    numbers: int = 0
    calm: bool = False
    surprises: list[str] = attrs.field(factory=list, init=False)
    scheduler: Scheduler = attrs.field(init=False)
    _writes: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)

    def clock(self) -> float:
        return self.now

    # The API server

    def pods_by_name(self) -> dict[str, Pod]:
        """Return the placeholders that are there."""
        return {each.name: each for each in self.pods.values() if _asks(each)}

    def put_pod(self, new: Pod) -> None:
        """Store a pod, and let the watch show it later."""
        self.pods[new.uid] = new
        self.shown["pods"].append(lambda scheduler: scheduler.pod_came(new))

    def remove_pod(self, uid: str) -> None:
        if self.pods.pop(uid, None) is not None:
            self.shown["pods"].append(lambda scheduler: scheduler.pod_went(uid))

    def put_node(self, new: Node) -> None:
        """Store a node."""
        self.nodes[new.name] = new
        self.shown["nodes"].append(lambda scheduler: scheduler.node_came(new))

    async def create(self, name: str, manifest: Mapping[str, Any]) -> Pod:
        """Create a placeholder when the deed comes; return it."""

        def create() -> Pod:
            there = self.pods_by_name().get(name)
            if there is None:
                self.numbers += 1
                there = placeholder(manifest, f"uid-{name}-{self.numbers}", self.now)
                self.put_pod(there)
            return there

        created = await self._called(create)
        assert isinstance(created, Pod)
        return created

    async def mark(self, name: str, uid: str) -> None:
        """Let autoscalers see a placeholder when the deed comes."""

        def mark() -> None:
            there = self.pods_by_name().get(name)
            if there is not None and there.uid == uid:
                self.put_pod(attrs.evolve(there, scheduled=SEEN))

        await self._called(mark)

    async def delete(self, name: str, uid: str) -> None:
        """Delete a placeholder when the deed comes."""

        def delete() -> None:
            there = self.pods_by_name().get(name)
            if there is not None and there.uid == uid:
                self.remove_pod(there.uid)

        await self._called(delete)

    async def _called(self, deed: Callable[..., Any]) -> Any:
        if self.strict:
            return deed()
        call = Call(deed)
        self.calls.append(call)
        await call.done.wait()
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer

    # Deeds

    def answer(self) -> None:
        """Answer one of the requests that are under way, in any order; with faults in any way."""
        if not self.calls:
            return
        call = self.calls.pop(self.dice.randrange(len(self.calls)))
        how = "answered" if self.strict or self.calm else self.dice.choice(("answered", "lost", "never", "late", "no"))
        if how == "answered":
            call.answer = call.deed()
        elif how == "lost":
            call.deed()
            call.answer = UnreachableError("no answer")
        elif how == "never":
            call.answer = UnreachableError("503")
        elif how == "late":
            self.late.append(call.deed)
            call.answer = UnreachableError("no answer")
        else:
            refused = ApiError(403, reason="Forbidden", message="no", is_status=True)
            call.answer = refused if self.dice.random() < 0.3 else RuntimeError("of ours")
        call.done.set()

    def commit_late(self) -> None:
        """Let a request take effect to which there was no answer."""
        if self.late:
            self.late.pop(0)()

    def show(self) -> None:
        """Let a watch show its next event."""
        name = self.dice.choice(("pods", "nodes"))
        if self.shown[name]:
            self.shown[name].popleft()(self.scheduler)

    def place(self) -> None:
        self.scheduler.place()

    def bind(self) -> None:
        """Let one Binding take effect."""
        if not self.scheduler.sent:
            return
        commitment = self.scheduler.sent.pop(0)
        there, node_name = self.pods.get(commitment.pod.uid), commitment.node_name
        refused = not (self.strict or self.calm) and self.dice.random() < 0.2
        if there is None or node_name not in self.nodes or refused:
            self.scheduler.cluster.forget(commitment.pod.uid)
            return
        self.put_pod(attrs.evolve(there, node_name=node_name, allocation=commitment.annotations, scheduled=None))

    async def plan(self) -> None:
        await self.scheduler.rounds.round()

    def wait(self) -> None:
        """Let time pass."""
        self.now += self.dice.choice((0.5, 5.0, 60.0))
        self.scheduler.machines._turns._wake_all()

    def buy(self) -> None:
        """Let the autoscaler look at the pods and nodes, as they are on the server."""
        used = {name: [p for p in self.pods.values() if p.node_name == name] for name in self.nodes}
        nodes = [
            Machine(name, TRN1, 16 - sum(p.requests.get(NEURON_DEVICE, 0) for p in used[name]), NODE_CPU)
            for name in self.nodes
        ]
        wishes = [
            Wish(
                p.name,
                p.requests[NEURON_DEVICE],
                p.requests.get(CPU, 0),
                p.created,
                placeholder=p.namespace == NAMESPACE,
            )
            for p in self.pods.values()
            if not p.node_name and p.scheduled is not None and p.scheduled.reason == "Unschedulable"
        ]
        left = [attrs.evolve(machine, wishes=()) for machine in self.coming]
        new = bought(wishes, nodes, left, [InstanceType(TRN1, 16, NODE_CPU)])
        self.bought += len(new)
        self.coming += new

    def join(self) -> None:
        """Let a machine join that is not ready, and shows no devices; or let it become ready."""
        if self.joining and self.dice.random() < 0.7:
            name = self.joining.pop(0)
            self.put_node(attrs.evolve(self.nodes[name], taints=(), allocatable=node(name, TRN1).allocatable))
        elif self.coming:
            self.coming.pop(0)
            self.numbers += 1
            name = f"z{self.numbers:04}"
            self.joining.append(name)
            self.put_node(node(name, TRN1, cpu=NODE_CPU, devices=0, taints=NOT_READY, created=self.now))

    def leave(self) -> None:
        """Delete a pod that waits or runs."""
        if self.calm or not self.loses:
            return
        some = [each.uid for each in self.pods.values() if each.namespace == "default"]
        if some and self.dice.random() < 0.3:
            self.remove_pod(self.dice.choice(some))

    def lose(self) -> None:
        """Remove a machine that was bought, with its pods."""
        if self.calm or not self.loses or self.dice.random() < 0.8:
            return
        some = [name for name in self.nodes if name.startswith("z")]
        if some:
            name = self.dice.choice(some)
            del self.nodes[name]
            self.joining = [each for each in self.joining if each != name]
            for each in [each for each in self.pods.values() if each.node_name == name]:
                self.remove_pod(each.uid)
            self.shown["nodes"].append(lambda scheduler: scheduler.node_went(name))

    async def die(self) -> None:
        """Let the leader die; the next one lists all, and goes on."""
        if self.strict or self.calm or self.dice.random() < 0.7:
            return
        self._writes.cancel()
        await self.settled()
        self.late += [call.deed for call in self.calls if self.dice.random() < 0.5]
        self.calls.clear()
        await self.start()

    async def start(self) -> None:
        """Let a scheduler begin to lead."""
        self.scheduler = Scheduler(self)
        for events in self.shown.values():
            events.clear()
        for each in self.nodes.values():
            self.scheduler.node_came(each)
        for listed in self.pods.values():
            self.scheduler.pod_came(listed)
        self._writes = anyio.CancelScope()
        self.tasks.start_soon(self._write, self.scheduler, self._writes)
        await self.settled()

    async def _write(self, scheduler: Scheduler, scope: anyio.CancelScope) -> None:
        with scope:
            await scheduler.machines.run()

    async def settled(self) -> None:
        for _ in range(12):
            await anyio.lowlevel.checkpoint()


def _asks(pod: Pod) -> bool:
    return pod.namespace == NAMESPACE


def placeholder(manifest: Mapping[str, Any], uid: str, now: float) -> Pod:
    """Return a placeholder as the watch shows it before it has its condition."""
    stored = PODS.decode(msgspec.json.encode(manifest)).value
    assert isinstance(stored, Pod)
    return attrs.evolve(stored, uid=uid, created=now)
