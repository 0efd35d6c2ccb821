"""After any history of nodes, devices, claims and pods, the cluster is one that was told the last states only."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import or_
from random import Random
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster import fold
from neuron_scheduler.cluster.changes import AssumedPodChanged, PodPending
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.model.devices import (
    NEURON_DRIVER,
    AttributeValue,
    ClaimAllocation,
    ClaimReference,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceRequest,
    DeviceTaintRule,
    MatchAttribute,
    ResourceClaim,
    ResourceSlice,
)
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, select_node
from neuron_scheduler.scheduling.cycle.trial import AssumedPod, give_back, take
from tests.support.builders import node, pod
from tests.support.thoroughness import examples

Object = Node | ResourceSlice | DeviceClass | DeviceTaintRule | ResourceClaim | Pod
Kind = type[Object]
PROFILE: Final = default_profile("my-scheduler")
NODES: Final = ("a", "b")
OTHER: Final = "dra.net"
NAMES: Final[dict[Kind, tuple[str, ...]]] = {
    Node: NODES,
    ResourceSlice: ("s", "t", "u"),
    DeviceClass: (NEURON_DRIVER, OTHER),
    DeviceTaintRule: ("r",),
    ResourceClaim: ("c", "d", "e"),
    Pod: ("p", "q", "x", "y"),
}
HISTORIES: Final = 480
STEPS: Final = 60


@attrs.define(eq=False)
class World:
    """
    What happens to a cluster.

    Attributes:
        there: the last states of all objects.
        told: what each pending pod asks for, as the queue was told last.
        deciding: the pods that are being bound, by uid, with the claims that are still to be written.
    """

    dice: Random
    cluster: Cluster = attrs.field(factory=lambda: Cluster(claims=Claims()))
    there: dict[tuple[Kind, str], Any] = attrs.field(factory=dict)
    told: dict[str, Pod] = attrs.field(factory=dict)
    deciding: dict[str, tuple[AssumedPod, set[str]]] = attrs.field(factory=dict)
    undone: int = 0
    version: int = 0

    @property
    def claims(self) -> Claims:
        assert self.cluster.claims is not None
        return self.cluster.claims

    def step(self) -> None:
        happening = (self.change, self.lose, self.try_out, self.decide, self.go_on)
        self.dice.choices(happening, (3, 1, 1, 1, 2))[0]()

    def put(self, new: Any) -> None:
        key = type(new), new.name
        self._hear(fold.put(self.cluster, self.there.get(key), new))
        self.there[key] = new

    def change(self) -> None:
        kind = self.dice.choice([*NAMES])
        name = self.dice.choice(NAMES[kind])
        if not self._is_kept(kind, name):
            self.put(_MAKERS[kind](self, name))

    def lose(self) -> None:
        if self.there:
            kind, name = self.dice.choice([*self.there])
            if kind is Pod:
                self.release(self.there[kind, name].uid)
            if not self._is_kept(kind, name):
                self._hear(fold.remove(self.cluster, self.there.pop((kind, name))))

    def _is_kept(self, kind: Kind, name: str) -> bool:
        """Return whether an object is a claim with devices that a pod counts on: its finalizer keeps it as it is."""
        users = {each.claim_name for taken, _ in self.deciding.values() for each in taken.pod.claims}
        known = self.there.get((kind, name))
        return isinstance(known, ResourceClaim) and name in users and known.allocation is not None

    def _hear(self, changes: Sequence[Any]) -> None:
        for change in changes:
            if isinstance(change, (PodPending, AssumedPodChanged)):
                self.told[change.pod.uid] = change.pod

    def pending(self) -> list[Pod]:
        pods = [self.claims.resolve(each) for (kind, _), each in self.there.items() if kind is Pod]
        return [each for each in pods if not each.node_name and self.cluster.node_of(each.uid) is None]

    def _assumed(self) -> AssumedPod | None:
        asking = [each for each in self.pending() if not each.gates]
        if not asking:
            return None
        chosen = self.dice.choice(asking)
        decision = select_node(self.cluster, chosen, PROFILE)
        return take(self.cluster, chosen, decision) if isinstance(decision, Decision) else None

    def try_out(self) -> None:
        """Several pods are placed, and taken back: that leaves no trace."""
        before, table = self.rows(), attrs.asdict(self.claims, recurse=False)
        taken = [each for each in (self._assumed() for _ in range(3)) if each is not None]
        for each in reversed(taken):
            give_back(self.cluster, each)
        self.undone += len(taken)
        assert self.rows() == before
        assert attrs.asdict(self.claims, recurse=False) == table

    def decide(self) -> None:
        taken = self._assumed()
        if taken is not None:
            known = (f"default/{each.claim_name}" for each in taken.pod.claims)
            keys = {key for key in known if self.claims.claims[key].allocation is None}
            self.deciding[taken.pod.uid] = taken, keys
            self._resolve(self.claims.decide(taken.pod, keys))

    def go_on(self) -> None:
        """A claim of a pod that is being bound is written; then the pod has a node; or all is given up."""
        if not self.deciding:
            return
        uid = self.dice.choice([*self.deciding])
        taken, keys = self.deciding[uid]
        if self.dice.random() < 0.2:
            self.release(uid)
        elif keys:
            self._write(taken, keys.pop())
        else:
            self._resolve(self.claims.end_writing(uid))
            del self.deciding[uid]
            self.put(attrs.evolve(self.there[Pod, taken.pod.name], node_name=taken.decision.node_name))

    def _write(self, taken: AssumedPod, key: str) -> None:
        claim, info = self.claims.claims.get(key), self.cluster.pod_info(taken.pod.uid)
        if claim is None or claim.allocation is not None or info is None:
            self.release(taken.pod.uid)
            return
        # One claim gets all of the pod's new devices: which one has them makes no difference here.
        held = {device for each in self.claims.claims.values() if each.allocation for device in each.allocation.devices}
        devices = [device for device in info.pod.devices if device not in held]
        on = allocation(devices, taken.decision.node_name)
        self.put(attrs.evolve(claim, allocation=on, resource_version=self.newer()))

    def release(self, uid: str) -> None:
        taken, _ = self.deciding.pop(uid, (None, None))
        if taken is not None:
            give_back(self.cluster, taken)
            self.claims.withdraw(uid)
            self._resolve([uid, *self.claims.end_writing(uid)])

    def _resolve(self, uids: Iterable[str]) -> None:
        for raw in map(self.claims.pods.get, uids):
            if raw is not None:
                self.told[raw.uid] = self.claims.resolve(raw)

    def newer(self) -> str:
        self.version += 1
        return str(self.version)

    # What must hold

    def rows(self) -> list[Any]:
        return [row_of(self.cluster, name) for name in NODES]

    def check(self) -> None:
        """The rows, and what pods ask for, are those of a cluster that is told the last states in some order."""
        rebuilt = World(self.dice)
        for each in self.dice.sample([*self.there.values()], len(self.there)):
            rebuilt.put(each)
        for uid, (taken, _) in self.deciding.items():
            info = self.cluster.pod_info(uid)
            if info is not None:
                rebuilt.cluster.put_pod(info.pod)
            keys = [key for key, by in self.claims._writing.items() if by == uid]
            rebuilt._resolve(rebuilt.claims.decide(taken.pod, keys))
        assert rebuilt.rows() == self.rows()
        for resolved in self.pending():
            assert asked(self.told[resolved.uid]) == asked(resolved) == asked(rebuilt.told[resolved.uid])
            assert self.claims.waiting.get(resolved.uid) == rebuilt.claims.waiting.get(resolved.uid)


def row_of(cluster: Cluster, name: str) -> Any:
    """Return a row; what an assumed pod has already by an allocated claim counts as the claim's until it is seen."""
    row = cluster.node(name)
    if row is None:
        return None
    held = reduce(or_, (each.cores or NO_CORES for each in row.pod_infos.values()), row.claimed.alone)
    usage = attrs.evolve(row.neuron_usage, has_multi_unit_pod=False)
    return attrs.evolve(row, claimed=attrs.evolve(row.claimed, alone=held), neuron_usage=usage), {*row.pod_infos}


def asked(resolved: Pod) -> Any:
    """Return what a pod asks for, but for how many devices that are: nodes say so, and it is asked at each attempt."""
    wanted = None if resolved.neuron is None else resolved.neuron.wanted
    return attrs.evolve(resolved, neuron=None), wanted


def allocation(devices: Sequence[DeviceKey], on: str) -> ClaimAllocation:
    term = NodeSelectorTerm((), (Requirement("metadata.name", Operator.IN, (on,)),))
    return ClaimAllocation(tuple(devices), (term,))


def _some_node(world: World, name: str) -> Node:
    counts = world.dice.random() < 0.1
    return node(name, "trn2.48xlarge" if counts else "", created=world.dice.randint(0, 1))


def _some_slice(world: World, name: str) -> ResourceSlice:
    dice, on = world.dice, world.dice.choice(NODES)
    driver = dice.choice((NEURON_DRIVER, NEURON_DRIVER, OTHER))
    return ResourceSlice(
        uid=f"uid-{name}",
        name=name,
        driver=driver,
        pool=dice.choice((on, name, name, name)),
        generation=dice.choice((1, 1, 1, 2)),
        slice_count=dice.choice((1, 1, 1, 1, 2)),
        node_name=on,
        devices=tuple(_device(dice, driver, number) for number in range(dice.choice((2, 4, 4)))),
    )


def _device(dice: Random, driver: str, number: int) -> Device:
    taints = (Taint("sick", Effect.NO_SCHEDULE),) if dice.random() < 0.05 else ()
    unserved = "bindingConditions" if dice.random() < 0.05 else ""
    attributes: dict[str, AttributeValue] = {f"{driver}/deviceId": number, "g/id": f"g{number // 2}"}
    source = repr((number, taints, unserved)).encode()
    return Device(driver, source, f"d{number}", attributes, {}, taints, unserved)


def _some_class(world: World, name: str) -> DeviceClass:
    unserved = "managementMode" if world.dice.random() < 0.1 else ""
    return DeviceClass(f"uid-{name}", name, (f"device.driver == '{name}'",), unserved=unserved)


def _some_rule(world: World, name: str) -> DeviceTaintRule:
    driver, device = world.dice.choice((None, NEURON_DRIVER)), world.dice.choice((None, "d0", "d0", "d1"))
    return DeviceTaintRule(f"uid-{name}", name, (Taint("rule", Effect.NO_EXECUTE),), driver, None, device)


def _some_claim(world: World, name: str) -> ResourceClaim:
    """Return a claim, mostly with the spec of the one that is there, which cannot be changed."""
    dice, known = world.dice, world.there.get((ResourceClaim, name))
    if known is None or dice.random() < 0.2:
        request = DeviceRequest("r", dice.choice((NEURON_DRIVER, NEURON_DRIVER, OTHER)), dice.choice((0, 1, 1, 2, 2)))
        constraints = (MatchAttribute("g/id"),) if dice.random() < 0.3 else ()
        uid = f"uid-{name}-{world.newer()}"
        known = ResourceClaim(uid, "default", name, requests=(request,), constraints=constraints)
    slices = [each for (kind, _), each in world.there.items() if kind is ResourceSlice]
    devices = [DeviceKey(each.driver, each.pool, device.name) for each in slices for device in each.devices]
    has = allocation(dice.sample(devices, min(len(devices), 2)), dice.choice(NODES)) if dice.random() < 0.15 else None
    return attrs.evolve(
        known,
        allocation=has,
        reserved_for={"uid-p": "p"} if has else {},
        terminating=dice.random() < 0.05,
        unserved="adminAccess" if dice.random() < 0.05 else "",
        resource_version=world.newer(),
    )


def _some_pod(world: World, name: str) -> Pod:
    """Return a pod: new with any claims, or the one that is there, perhaps on a node."""
    dice, known = world.dice, world.there.get((Pod, name))
    if known is None:
        names = dice.sample(NAMES[ResourceClaim], dice.choice((1, 1, 2)))
        claims = tuple(ClaimReference(each, each) for each in names)
        known = attrs.evolve(pod(name, claims=claims), uid=f"uid-{name}-{world.newer()}")
    is_bound = not known.node_name and known.uid not in world.deciding and dice.random() < 0.1
    return attrs.evolve(
        known,
        labels={"app": dice.choice("xy")},
        node_name=dice.choice(NODES) if is_bound else known.node_name,
        terminating=dice.random() < 0.1,
    )


_MAKERS: Final[dict[Kind, Callable[[World, str], Any]]] = {
    Node: _some_node,
    ResourceSlice: _some_slice,
    DeviceClass: _some_class,
    DeviceTaintRule: _some_rule,
    ResourceClaim: _some_claim,
    Pod: _some_pod,
}


@pytest.mark.sampled
def test_any_history_of_claims() -> None:
    """Also while pods are bound and claims are written; and trials that are undone leave no trace."""
    undone = 0
    for seed in range(examples(HISTORIES)):
        world = World(Random(seed))
        for kind, names in NAMES.items():
            for name in names:
                world.put(_MAKERS[kind](world, name))
        for number in range(STEPS):
            world.step()
            if number % 3 == 0:
                world.check()
        undone += world.undone
    assert undone > examples(HISTORIES)
