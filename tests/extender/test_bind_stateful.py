"""
Any interleaving of bind calls with each other, with our own queue and with what the cluster does.

No core is ever given to two pods, an answer of success is true, and in the end nothing is assumed that is not bound.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.controllers import scheduling_loop
from neuron_scheduler.extender import bind
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.objects.base import Decoded
from neuron_scheduler.kube.writes.binder import Binding, BindOutcome, Bound, Fenced, Gone, InDoubt, Refused
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.annotations import allocation_of
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.queue.places import Place
from tests.support.builders import node, pod
from tests.support.extender_road import Road, call
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

NODES = [node("n", "trn1.32xlarge"), node("m", "trn1.32xlarge"), node("o", "inf2.24xlarge"), node("plain")]
ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"devices": 1},
    {"devices": 1},
    {"devices": 4},
    {"devices": 4},
    {"devices": 8},
    {"cores": 2},
)


@attrs.define(eq=False)
class Chaos(Road):
    """
    An API server with answers by chance, and a watch that shows its objects later.

    Attributes:
        calm: whether it answers every request well.
        unseen: the keys of pods whose last change the watch has not shown.
    """

    dice: Random = attrs.field(factory=Random)
    calm: bool = False
    unseen: list[str] = attrs.field(factory=list)
    there: dict[str, Node] = attrs.field(factory=lambda: {known.name: known for known in NODES})
    answers: list[tuple[str, str]] = attrs.field(factory=list)

    # The binder

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome | InDoubt:
        """Try once."""
        backoff = Backoff(lambda: 0.0)
        binding = Binding(pod=pod, path="", body=b"", node_name=node_name, annotations=annotations, backoff=backoff)
        return await self.try_again(binding)

    async def try_again(self, binding: Binding, lost: BindOutcome | None = None) -> BindOutcome | InDoubt:
        """Commit, refuse, or leave the outcome unknown."""
        for _ in range(self.dice.randint(0, 8)):
            await anyio.lowlevel.checkpoint()
        if not self.leads and lost is None:
            return InDoubt(binding, 0.0) if binding.unknown else Fenced()
        stored = self.stored.get(binding.pod.key)
        if stored is None:
            return Gone()
        if stored.node_name or stored.terminating:
            ours = stored.node_name == binding.node_name and stored.allocation == dict(binding.annotations)
            return Bound() if ours else Refused(409, "already assigned")
        return lost or self.by_chance(binding, stored)

    def by_chance(self, binding: Binding, stored: Pod) -> BindOutcome | InDoubt:
        """Answer a Binding that could be committed."""
        luck = 1.0 if self.calm else self.dice.random()
        if luck < 0.15 and not binding.unknown:
            return Refused(403, "by chance")
        if luck < 0.3:
            binding.unknown = True
            return InDoubt(binding, 0.0)
        self.write(attrs.evolve(stored, node_name=binding.node_name, allocation=dict(binding.annotations)))
        if luck < 0.45:
            binding.unknown = True
            return InDoubt(binding, 0.0)
        return Bound()

    # The API server

    def write(self, new: Pod) -> None:
        """Store a pod's new state; it must not have a core of another one."""
        self.stored[new.key] = new
        self.unseen.append(new.key)
        self.check()

    def check(self) -> None:
        """No core of any node belongs to two pods, and every pod with Neuron has its cores."""
        for known in NODES:
            used = NO_CORES
            for bound in self.on(known.name):
                cores = allocation_of(bound, machine_of(known))[0]
                assert cores is not None, bound
                assert not cores & used, f"{bound.key} has cores of another pod on {known.name}"
                used = used | cores

    def on(self, name: str) -> list[Pod]:
        """Return the pods that are bound to a node."""
        return [known for known in self.stored.values() if known.node_name == name]

    def show(self) -> None:
        """Let the watch show the oldest change that it has not shown; one list may stand for several."""
        key = self.unseen.pop(0)
        if key in self.unseen:
            return  # it is shown with its last change
        stored = self.stored.get(key)
        if stored is not None:
            self.store.put(Decoded(key, stored.uid, "", stored))
        else:
            self.store.remove(key)

    # What happens

    async def ask(self, name: str, on: str, scope: anyio.CancelScope) -> None:
        """Call the verb; a success must be true, unless the pod is gone by now."""
        with scope:
            answer = await self.verb.bind(call(name, on))
            self.answers.append((name, answer))
            stored = self.stored.get(f"default/{name}")
            assert answer or stored is None or stored.node_name == on, name

    def create(self, name: str) -> None:
        """Create a pod of either road."""
        scheduler = self.dice.choice(("my-scheduler", "default-scheduler", "default-scheduler"))
        self.write(pod(name, scheduler_name=scheduler, **self.dice.choice(ASKED)))

    def change_one(self) -> None:
        """Delete a pod, let it terminate, let its kubelet admit it, or let kube-scheduler nominate a node for it."""
        pods = [*self.stored.values()]
        if not pods:
            return
        known, luck = self.dice.choice(pods), self.dice.random()
        if luck < 0.3:
            del self.stored[known.key]
            self.unseen.append(known.key)
        elif luck < 0.4:
            self.write(attrs.evolve(known, terminating=True))
        elif known.node_name:
            self.write(attrs.evolve(known, admitted=True))
        elif known.scheduler_name != "my-scheduler":
            self.write(attrs.evolve(known, nominated_node_name=self.dice.choice(("", *self.there))))

    def change_node(self) -> None:
        """Let a node vanish or come back."""
        known = self.dice.choice(NODES)
        if self.there.pop(known.name, None) is not None:
            self.nodes.on_deleted(known)
        else:
            self.there[known.name] = known
            self.nodes.on_added(known)

    async def settle(self) -> None:
        """Let everything come to its end."""
        self.calm = self.leads = True
        for known in NODES:
            if known.name not in self.there:
                self.there[known.name] = known
                self.nodes.on_added(known)
        for nominated in [*self.stored.values()]:
            if nominated.nominated_node_name:
                self.write(attrs.evolve(nominated, nominated_node_name=""))
        for _ in range(60):
            while self.unseen:
                self.show()
            for bound in [known for known in self.stored.values() if known.node_name]:
                if not bound.admitted:
                    self.write(attrs.evolve(bound, admitted=True))
            self.scheduler.wake_up.set()
            await self.pass_time(11.0)
            busy = any(self.queue.count(place) for place in (Place.ACTIVE, Place.BACKOFF, Place.IN_FLIGHT))
            if not (busy or self.unseen or self.verb.calls or self.scheduler.binding_cycle.fence.waiting_count):
                return
        raise AssertionError("it never comes to rest")


@asynccontextmanager
async def running(chaos: Chaos) -> AsyncIterator[anyio.abc.TaskGroup]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(chaos.scheduler.run)
        yield tasks
        tasks.cancel_scope.cancel()


async def step(chaos: Chaos, tasks: anyio.abc.TaskGroup, scopes: list[anyio.CancelScope], number: int) -> None:
    """Let something happen."""
    dice, luck = chaos.dice, chaos.dice.random()
    if luck < 0.2:
        chaos.create(f"p{number}")
    elif luck < 0.55:
        foreign = [p for p in chaos.stored.values() if p.scheduler_name != "my-scheduler"]
        name = dice.choice(foreign).name if foreign and dice.random() < 0.95 else f"p{dice.randint(0, number)}"
        scopes.append(anyio.CancelScope())
        tasks.start_soon(chaos.ask, name, dice.choice(NODES).name, scopes[-1])
    elif luck < 0.62 and scopes:
        scopes.pop(dice.randrange(len(scopes))).cancel()
    elif luck < 0.85:
        if chaos.unseen:
            chaos.show()
    elif luck < 0.95:
        chaos.change_one()
    elif luck < 0.96:
        chaos.change_node()
    elif luck < 0.97:
        chaos.leads = False
    elif luck < 0.98:
        chaos.verb.longest_call = dice.choice((0.0, 0.001, 20.0))
    else:
        await chaos.pass_time(dice.choice((1.0, 130.0)))
    for _ in range(dice.randint(0, 5)):
        await anyio.lowlevel.checkpoint()
    chaos.leads |= dice.random() < 0.3


@pytest.mark.parametrize("seed", range(examples(12)))
async def test_no_core_is_given_to_two_pods_and_nothing_leaks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever happens in whatever order."""
    for module in (scheduling_loop, bind):
        monkeypatch.setattr(module, "_PAUSE", 0.0)
    chaos = Chaos(dice=Random(seed), cluster=cluster_of(NODES))
    scopes: list[anyio.CancelScope] = []
    async with running(chaos) as tasks:
        for number in range(600):
            await step(chaos, tasks, scopes, number)
        await chaos.settle()
        assert not chaos.surprises
        assert chaos.cluster.assumed_count == 0
        assert not chaos.cluster.has_nominations
        for known in NODES:
            row: Any = chaos.cluster.node(known.name)
            assert set(row.pod_infos) == {bound.uid for bound in chaos.on(known.name)}
        bound = [p for p in chaos.stored.values() if p.node_name]
        assert {p.scheduler_name for p in bound} == {"my-scheduler", "default-scheduler"}
    succeeded = [name for name, answer in chaos.answers if not answer]
    assert succeeded
    assert len(chaos.answers) - len(succeeded) > 10
