"""
A scheduler with the verb `bind` beside its queue, around stand-ins for the API server.

Object store, handlers, fence, binding cycle and verb are the real ones.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.controllers.foreign_nominations import ForeignNominations
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.extender.bind import Bind
from neuron_scheduler.extender.protocol import ExtenderBindingArgs
from neuron_scheduler.kube.objects.base import Decoded
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.object_store import ObjectStore
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.profile import extender_profile
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.controllers.test_binding_cycle import World
from tests.support.builders import node, pod
from tests.support.loops import watches_of


@attrs.define(eq=False)
class Road(World):
    """
    Both roads of one process.

    Attributes:
        stored: pods at the API server, by key, which the watch may not have shown.
        allocated_ids: what was reported to the owners of pods, by name.
        counted: the results of calls.
    """

    verb: Bind = attrs.field(init=False)
    kept: ForeignNominations = attrs.field(init=False)
    store: ObjectStore[Pod] = attrs.field(init=False)
    nodes: WatchHandler[Node] = attrs.field(init=False)
    stored: dict[str, Pod] = attrs.field(factory=dict)
    allocated_ids: dict[str, tuple[int, ...]] = attrs.field(factory=dict)
    counted: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        road: Any = self
        self.kept = ForeignNominations(
            cluster=self.cluster,
            queue=self.queue,
            profile=extender_profile(),
            own_names={"my-scheduler"},
            clock=lambda: self.now,
        )
        fence = self.scheduler.binding_cycle.fence
        watches = watches_of(self.cluster, self.queue, fence, self.kept, clock=lambda: self.now)
        handler, self.nodes = watches.of(PODS), watches.of(NODES)
        self.store = ObjectStore(handler=handler, kind="Pod", is_same=PODS.is_same, on_failure=lambda: None)
        self.verb = Bind(
            cluster=self.cluster,
            profile=extender_profile(),
            announcer=self.scheduler.attempts.announcer,
            cycle=self.scheduler.binding_cycle,
            pod_by_key=self.store.get,
            reporter=road,
            may_bind=lambda: self.leads,
            own_names={"my-scheduler"},
            clock=lambda: self.now,
            on_answer=self.counted.append,
            errors=UnexpectedErrors(self._surprised),
        )

    # What the parts call

    def report_allocated(self, pod: Pod, node_name: str, placement: Placement) -> None:
        """Remember it."""
        self._break("allocated", pod)
        assert node_name
        self.allocated_ids[pod.name] = placement.ids

    # What the watch shows

    def see(self, seen: Pod) -> None:
        """Show a pod's new state."""
        self.stored[seen.key] = seen
        self.store.put(Decoded(seen.key, seen.uid, "", seen))

    def lose(self, name: str) -> None:
        """Show that a pod is gone."""
        self.stored.pop(f"default/{name}", None)
        self.store.remove(f"default/{name}")

    def change(self, name: str, **changes: Any) -> None:
        """Show a change of a pod."""
        known = self.store.get(f"default/{name}")
        assert known is not None
        self.see(attrs.evolve(known, **changes))

    def confirm(self, name: str, **changes: Any) -> None:
        """Show that a pod is bound as its last Binding said."""
        number = len(self.tried) - 1 - self.tried[::-1].index(name)
        on = self.cluster.node_of(f"uid-{name}") or "n"
        self.change(name, node_name=on, allocation=dict(self.sent[number]), **changes)

    def foreign(self, name: str, **fields: Any) -> Pod:
        """Show a pod that kube-scheduler schedules, and return it."""
        new = pod(name, **fields)
        self.see(new)
        return new

    def held(self, name: str = "n") -> int:
        """Return how many cores of a node are not free."""
        node_info = self.cluster.node(name)
        assert node_info is not None
        assert node_info.machine is not None
        return (node_info.machine.all_cores & ~node_info.free_cores).bit_count()

    async def pass_time(self, seconds: float) -> None:
        """Advance the clocks, and let the fence look at its alarms."""
        self.now += seconds
        self.wall += int(seconds * 1e9)
        list(self.scheduler.binding_cycle.fence.expire())
        await turns()


def call(name: str, on: str = "n", **fields: Any) -> ExtenderBindingArgs:
    """Return a call as kube-scheduler makes it."""
    given: dict[str, Any] = {"pod_name": name, "pod_namespace": "default", "pod_uid": f"uid-{name}", "node": on}
    return ExtenderBindingArgs(**{**given, **fields})


async def turns(count: int = 60) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[Road]:
    """Run a scheduler that leads beside the block."""
    road = Road(**settings)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(road.scheduler.run)
        await turns(5)
        yield road
        tasks.cancel_scope.cancel()


def torus(name: str, **fields: Any) -> Any:
    """Return a node with 16 devices of 2 cores."""
    return node(name, "trn1.32xlarge", pods=1000, **fields)


class Answer:
    """The answer to a call that runs in a task of its own."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.scope = anyio.CancelScope()

    async def of(self, road: Road, name: str, on: str = "n") -> None:
        with self.scope:
            self.text = await road.verb.bind(call(name, on))


def assert_nothing_is_held(road: Road) -> None:
    """No pod is assumed, no core is held, and no call is remembered."""
    assert (road.cluster.pod_count, road.cluster.assumed_count, road.held()) == (0, 0, 0)
    assert len(road.verb.calls) == 0
    assert road.scheduler.binding_cycle.fence.waiting_count == 0
