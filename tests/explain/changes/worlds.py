"""Random clusters with a pod that no node takes: each way of letting it in is possible in many of them."""

from collections.abc import Sequence
from random import Random
from typing import Any

import attrs

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import HostPort, Owner, Pod
from neuron_scheduler.model.selectors import (
    Effect,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
    Taint,
    Toleration,
)
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import legal_sets, place
from neuron_scheduler.scheduling.cycle.profile import default_profile
from tests.support.brute_force import CORDON, World
from tests.support.builders import GI, node, pod, request
from tests.support.random_objects import NAMES, WEB, bound_pod, pending_pod, some_node

TYPES = ("inf2.24xlarge", "trn1.32xlarge", "inf1.6xlarge", "inf2.xlarge")
HELD: tuple[dict[str, Any], ...] = (
    *({"devices": count} for count in (1, 1, 2, 3, 4, 8, 16)),
    *({"cores": count} for count in (1, 2, 4)),
)
ASKED: tuple[dict[str, Any], ...] = (
    *HELD,
    *({"devices": count} for count in (5, 6, 7, 12)),
    {"cores": 3},
    {"devices": (1, 1)},
    {"devices": (4, 2)},
    {"devices": 1, "init": (4,)},
    {},
)
TAINTS = (
    Taint("dedicated", Effect.NO_SCHEDULE, "a"),
    Taint("dedicated", Effect.NO_SCHEDULE, "b"),
    Taint("spot", Effect.NO_EXECUTE),
    Taint("soft", Effect.PREFER_NO_SCHEDULE),
    Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE),
)
STRICT = default_profile("my-scheduler")


def full_world(dice: Random) -> World:
    """Return nodes on which most devices are held, and a pod that asks for Neuron or cpu."""
    types = TYPES if dice.random() < 0.3 else (dice.choice(TYPES),)
    nodes = [_some_node(dice, name, dice.choice(types), age) for age, name in enumerate("abc"[: dice.randint(1, 3)])]
    bound = [holder for each in nodes for holder in _holders(dice, each)]
    kept = [(each.name, nomination) for each in nodes for nomination in _kept(dice, each, bound)]
    profile = STRICT
    legal = [asked for asked in ASKED if any(_serves(each, asked) for each in nodes)]
    pending = _some_pending(dice, dice.choice(legal if dice.random() < 0.8 else ASKED))
    if pending.neuron is not None and dice.random() < 0.1:
        kept.append((dice.choice(nodes).name, Nomination(pending, CoreMask(dice.getrandbits(8)))))
    return World(tuple(nodes), tuple(bound), pending, tuple(kept), profile)


def crowded_world(dice: Random) -> World:
    """Return nodes on which pods use up cpu, memory and the number of pods, each pod another part of them."""
    nodes = [
        node(name, "trn1.32xlarge", created=age, cpu=8_000, memory=32 * GI, pods=dice.choice([6, 110]))
        for age, name in enumerate("ab"[: dice.randint(1, 2)])
    ]
    nodes = [attrs.evolve(each, labels={**each.labels, HOSTNAME_LABEL: each.name}) for each in nodes]
    bound = [_small(dice, f"{each.name}{number}", each) for each in nodes for number in range(dice.randint(3, 7))]
    near = PodAffinityTerm(HOSTNAME_LABEL, WEB, frozenset({"default"}))
    pending = pod(
        "pending",
        devices=dice.choice([0, 1, 4]),
        cpu=dice.choice([1_000, 3_000, 6_000]),
        memory=dice.choice([4, 12, 20]) * GI,
        priority=dice.choice([0, 5]),
        affinity=(near,) if dice.random() < 0.3 else (),
        anti_affinity=(near,) if dice.random() < 0.1 else (),
    )
    return World(tuple(nodes), tuple(bound), pending)


def _small(dice: Random, name: str, on: Node) -> Pod:
    return pod(
        name,
        on=on.name,
        cpu=dice.choice([0, 500, 2_000, 4_000]),
        memory=dice.choice([0, 2, 8, 16]) * GI,
        priority=dice.choice([0, 1]),
        labels={"app": dice.choice(["web", "db"])},
        terminating=dice.random() < 0.2,
    )


def mixed_world(dice: Random) -> World:
    """Return a world with random values in all fields that a filter reads."""
    nodes = tuple(some_node(dice, name) for name in NAMES[: dice.randint(1, 3)])
    names = {each.name for each in nodes}
    pods = (bound_pod(dice, f"p{number}") for number in range(dice.randint(0, 8)))
    return World(nodes, tuple(each for each in pods if each.node_name in names), pending_pod(dice, "pending"))


def _serves(on: Node, asked: dict[str, Any]) -> bool:
    machine = machine_of(on)
    return machine is not None and bool(asked) and bool(legal_sets(machine, request(**asked)))


def _some_node(dice: Random, name: str, instance_type: str, age: int) -> Node:
    cordoned = dice.random() < 0.15
    taints = tuple(dice.sample(TAINTS, dice.choice([0, 0, 0, 0, 0, 1, 2])))
    cordon = (Taint(CORDON, Effect.NO_SCHEDULE),) if cordoned and dice.random() < 0.5 else ()
    return node(
        name,
        instance_type,
        created=age,
        labels={ZONE_LABEL: dice.choice("xy")},
        cpu=dice.choice([4_000, 192_000]),
        unschedulable=cordoned,
        taints=(*taints, *cordon),
        neuron_fault="NeuronHealth" if dice.random() < 0.05 else "",
    )


def _holders(dice: Random, on: Node) -> list[Pod]:
    """Return up to six pods with disjoint legal sets, a few of them with unknown ids."""
    machine = machine_of(on)
    assert machine is not None
    free, holders = machine.all_cores, list[Pod]()
    for number in range(dice.choice([0, 2, 4, 6, 6])):
        asked = dice.choice(HELD)
        wanted = request(**asked)
        sets = [cores for cores in legal_sets(machine, wanted) or () if not cores & ~free]
        if not sets:
            continue
        placement = place(machine, dice.choice(sets), wanted)
        assert placement is not None
        free &= ~placement.cores
        holders.append(_holder(dice, f"{on.name}{number}", on, placement.ids, asked))
    return holders


def _holder(dice: Random, name: str, on: Node, ids: Sequence[int], asked: dict[str, Any]) -> Pod:
    owners = (None, None, None, Owner("apps/v1", "DaemonSet", "agent"), Owner("apps/v1", "ReplicaSet", "web"))
    return pod(
        name,
        namespace=dice.choice(["default", "other"]),
        on=on.name,
        ids=None if dice.random() < 0.1 else ids,
        cpu=dice.choice([0, 0, 1_000]),
        priority=dice.choice([0, 0, 5, 9]),
        started=dice.choice([None, 1.0, 2.0]),
        labels={"app": dice.choice("ab")},
        terminating=dice.random() < 0.15,
        owner=dice.choice(owners),
        host_ports=(HostPort("TCP", 80),) if dice.random() < 0.2 else (),
        **asked,
    )


def _kept(dice: Random, on: Node, bound: Sequence[Pod]) -> list[Nomination]:
    """Return space on a node that is kept for another pending pod, in a few cases."""
    machine = machine_of(on)
    if machine is None or dice.random() < 0.8:
        return []
    held = CoreMask(0)
    for holder in (each for each in bound if each.node_name == on.name and not each.terminating):
        ids = tuple(map(int, holder.allocation.get("AWS_NEURON_IDS", "").split(","))) if holder.allocation else ()
        width = machine.cores_per_device if holder.neuron is not None and holder.neuron.unit == "device" else 1
        for number in ids:
            held |= CoreMask(((1 << width) - 1) << number * width)
    wanted = pod(f"kept-{on.name}", devices=dice.choice([1, 4]), priority=dice.choice([0, 5, 9]))
    assert wanted.neuron is not None
    placement = place(machine, machine.all_cores & ~held, wanted.neuron)
    return [] if placement is None else [Nomination(wanted, placement.cores)]


def _some_pending(dice: Random, asked: dict[str, Any]) -> Pod:
    selector: dict[str, str] = {}
    if dice.random() < 0.15:
        selector[ZONE_LABEL] = dice.choice("xyz")
    if dice.random() < 0.2:
        selector[INSTANCE_TYPE_LABEL] = dice.choice(TYPES)
    expressions = [Requirement(ZONE_LABEL, Operator.IN, ("x",)), Requirement("rank", Operator.EXISTS)]
    term = NodeSelectorTerm(tuple(dice.sample(expressions, dice.randint(0, 2))))
    other = NodeSelectorTerm((Requirement(ZONE_LABEL, Operator.NOT_IN, ("x",)),))
    return pod(
        "pending",
        cpu=dice.choice([0, 0, 1_000, 4_000]),
        priority=dice.choice([0, 4, 9, 10]),
        node_selector=selector,
        required_terms=dice.choice([*[None] * 8, (term,), (term, other)]),
        tolerations=dice.choice([(), (), (Toleration("dedicated", value="a"),), (Toleration(CORDON, exists=True),)]),
        host_ports=(HostPort("TCP", 80),) if dice.random() < 0.1 else (),
        never_preempts=dice.random() < 0.1,
        **asked,
    )
