"""Random events of a cluster: pods, nodes, namespaces and storage come, change and go."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import anyio.lowlevel
import attrs

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.model.node import ZONE_LABEL, Node
from neuron_scheduler.model.pod import FEW_COMPARISONS, Pod
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.model.selectors import PodAffinityTerm
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.support import random_objects
from tests.support.builders import pod
from tests.support.random_storage import CLAIMS, some_storage
from tests.support.simulated_server import World
from tests.support.storage import at

WAITING = tuple("pqrstuvw")
BOUND = tuple("ABCDEF")
NEAR_WEB = PodAffinityTerm(ZONE_LABEL, random_objects.WEB, frozenset({"default"}))


def some_pending(dice: Random, name: str, uid: str) -> Pod:
    """Return a pod of ours that is hard to place for few reasons, so that a single event can make it fit."""
    full = random_objects.pending_pod(dice, name)
    plain = pod(name, labels=full.labels, namespace=full.namespace, cpu=dice.choice([0, 500, 9_000]))
    of_pod = dice.choice(
        [("requests", "neuron", "neuron_containers", "refusal"), ("host_ports",), ("tolerations",), ()]
    )
    of_constraints = dice.choice(
        [
            ("affinity", "anti_affinity"),
            ("spread", "required_terms"),
            ("node_selector", "required_terms"),
            tuple(field.name for field in attrs.fields(type(full.constraints))),
        ]
    )
    constraints = attrs.evolve(plain.constraints, **{key: getattr(full.constraints, key) for key in of_constraints})
    if dice.random() < 0.3:
        constraints = attrs.evolve(constraints, volume_claims=tuple(dice.sample(CLAIMS, dice.randint(1, 2))))
    if dice.random() < 0.1:  # so many terms that the side lane prepares the pod
        constraints = attrs.evolve(constraints, preferred_affinity=(NEAR_WEB,) * FEW_COMPARISONS)
    return attrs.evolve(
        plain,
        **{key: getattr(full, key) for key in of_pod},
        uid=uid,
        scheduler_name="my-scheduler",
        priority=dice.choice([0, 0, 5, 9]),
        never_preempts=dice.random() < 0.5,
        constraints=constraints,
    )


def some_bound(dice: Random, name: str, uid: str) -> Pod:
    """Return a pod that another scheduler has bound."""
    bound = random_objects.bound_pod(dice, name)
    claims = (dice.choice(CLAIMS),) if dice.random() < 0.3 else ()
    return attrs.evolve(
        bound,
        uid=uid,
        priority=dice.choice([0, 3, 7]),
        constraints=attrs.evolve(bound.constraints, volume_claims=claims),
    )


def changed_pod(dice: Random, known: Pod) -> Pod:
    """Return a pod that has changed as pods may."""
    change: dict[str, Any] = dice.choice(
        [
            {"labels": dice.choice(random_objects.LABELS)},
            {"requests": {resource: amount // 2 for resource, amount in known.requests.items()}},
            {"terminating": True},
            {"priority": dice.choice([0, 5, 9])},
            {"tolerations": (*known.tolerations, *random_objects.pending_pod(dice, "x").tolerations)},
        ]
    )
    if known.neuron is not None:
        change.pop("requests", None)
    return attrs.evolve(known, **change)


def changed_node(dice: Random, known: Node) -> Node:
    """Return a node with one field of another node, or one that cannot be read."""
    other = random_objects.some_node(dice, known.name)
    name = dice.choice(["labels", "taints", "unschedulable", "neuron_fault", "allocatable", "refusal"])
    if name == "refusal":
        return Node(uid=known.uid, name=known.name, refusal="cannot be read")
    changes = {name: getattr(other, name)}
    if name == "allocatable":
        changes["capacity"] = other.capacity
    return attrs.evolve(known, refusal="", **changes)


def change_storage(dice: Random, world: World) -> None:
    """Create, change or delete a storage object."""
    kind, name, made = some_storage(dice)
    world.see_storage(f"{kind}/{name}", None if dice.random() < 0.25 else made)


def replica(dice: Random, name: str, uid: str, of: Pod) -> Pod:
    """Return a copy of a pod that may wait, with another identity and sometimes other labels, namespace or priority."""
    known: dict[str, Any] = dice.choice(
        [
            {"labels": dice.choice(random_objects.LABELS)},
            {"namespace": dice.choice(["default", "other"])},
            {"priority": dice.choice([0, 5])},
            {},
            {},
        ]
    )
    return attrs.evolve(of, name=name, uid=uid, node_name="", nominated_node_name="", allocation={}, **known)


def _new_pod(dice: Random, world: World) -> None:
    name = dice.choice((*WAITING, *BOUND))
    if name in world.there:
        return
    alike = [
        world.there[name_of_waiting]
        for name_of_waiting in WAITING
        if name_of_waiting in world.there and not world.there[name_of_waiting].node_name
    ]
    if name in BOUND:
        world.see_pod(some_bound(dice, name, world.new_uid()))
    elif alike and dice.random() < 0.6:
        world.see_pod(replica(dice, name, world.new_uid(), dice.choice(alike)))
    else:
        world.see_pod(some_pending(dice, name, world.new_uid()))


def _broken_pod(dice: Random, world: World) -> None:
    name = dice.choice(BOUND)
    if name not in world.there:
        broken = world.there[name] = pod(name, uid=world.new_uid(), on=dice.choice(random_objects.NAMES))
        report = Malformed("Pod", broken.key, "broken", uid=broken.uid, node_name=broken.node_name)
        world.sights["pod"].put(Decoded(broken.key, broken.uid, "", report))


def _other_pod(dice: Random, world: World) -> None:
    if world.there:
        world.see_pod(changed_pod(dice, world.there[dice.choice(sorted(world.there))]))


def _lost_pod(dice: Random, world: World) -> None:
    if world.there:
        world.lose_pod(dice.choice(sorted(world.there)))


def _lost_foremost(dice: Random, world: World) -> None:
    """Delete the first pod of a line of equal ones."""
    lines = [line for line in world.queue._unschedulable._lines.values() if len(line.pods) > 1]
    if lines:
        line = dice.choice(lines)
        foremost = line.ahead or line.pods.first()
        if foremost is not None and foremost.pod.name in world.there:
            world.lose_pod(foremost.pod.name)


def _set_aside(dice: Random, world: World) -> None:
    if world.nodes:
        cores = dice.choice([None, CoreMask(0), CoreMask(dice.getrandbits(32))])
        world.cluster.set_aside(dice.choice(sorted(world.nodes)), cores)


def _gates(dice: Random, world: World) -> None:
    """Remove a pod's scheduling gates, or create a pod with some."""
    gated = [pod for pod in world.there.values() if pod.gates]
    name = dice.choice(WAITING)
    if gated:
        world.see_pod(attrs.evolve(dice.choice(gated), gates=()))
    elif name not in world.there:
        world.see_pod(attrs.evolve(some_pending(dice, name, world.new_uid()), gates=("later",)))


def _new_node(dice: Random, world: World) -> None:
    world.see_node(attrs.evolve(random_objects.some_node(dice, dice.choice(random_objects.NAMES)), uid=world.new_uid()))


def _other_node(dice: Random, world: World) -> None:
    if world.nodes:
        world.see_node(changed_node(dice, world.nodes[dice.choice(sorted(world.nodes))]))


def _lost_node(dice: Random, world: World) -> None:
    if world.nodes:
        world.lose_node(dice.choice(sorted(world.nodes)))


def _other_namespace(dice: Random, world: World) -> None:
    name, labels = dice.choice(sorted(random_objects.some_namespaces(dice).items()))
    world.sights["namespace"].put(Decoded(name, name, "", Namespace(name, name, labels)))


_EVENTS: Mapping[Callable[[Random, World], None], int] = {
    _new_pod: 30,
    _other_pod: 10,
    _lost_pod: 10,
    _broken_pod: 4,
    _new_node: 10,
    _other_node: 15,
    _lost_node: 5,
    _other_namespace: 3,
    _lost_foremost: 6,
    _set_aside: 5,
    _gates: 4,
    change_storage: 13,
}


def change(dice: Random, world: World) -> None:
    """Make one event happen."""
    (happening,) = dice.choices(list(_EVENTS), weights=list(_EVENTS.values()))
    happening(dice, world)


async def flicker(dice: Random, world: World) -> None:
    """Create a pod that may need a certain node; meanwhile change this node and change it back."""
    if not world.nodes:
        return
    known = world.nodes[dice.choice(sorted(world.nodes))]
    name, terms = dice.choice(WAITING), tuple(at(key, value)[0] for key, value in known.labels.items())
    if name not in world.there:
        drawn = some_pending(dice, name, world.new_uid())
        wanted = attrs.evolve(drawn.constraints, required_terms=(dice.choice(terms),) if terms else None)
        world.see_pod(attrs.evolve(drawn, constraints=wanted))
    for seen in (changed_node(dice, known), known):
        await pass_turns(dice.randint(0, 6))
        world.see_node(seen)


async def pass_turns(count: int) -> None:
    for _ in range(count):
        await anyio.lowlevel.checkpoint()
