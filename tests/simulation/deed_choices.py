"""
Which pods and nodes a seed gets, what happens to them and when, and which unreadable objects appear.

All is before the quiet, often close together. Many pods come in groups of equal ones at the same moment.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

import attrs

from sandbox.fleet import INSTANCE_TYPES
from tests.simulation import poison
from tests.simulation.deeds import (
    AddCondition,
    Annotate,
    BindElsewhere,
    Cordon,
    CreateBudget,
    CreateDeployment,
    CreateJob,
    CreateNode,
    CreatePod,
    DeleteNamespace,
    DeleteNode,
    DeletePod,
    Finalize,
    OpenGate,
    RecreatePod,
    ScaleDeployment,
    SetHealthy,
    Taint,
)
from tests.simulation.pod_plans import PodPlan
from tests.simulation.poison import Poison, RemovePoison
from tests.simulation.scenario import Deed


def moment(dice: Random, first: float, quiet_at: float, *, before: float = 0.5) -> float:
    """Return a moment from the first one on that is so many seconds before the quiet."""
    return round(dice.uniform(first, max(quiet_at - before, first)), 3)


def pair(dice: Random, quiet_at: float) -> tuple[float, float]:
    """Return two moments, the second soon after the first."""
    first = moment(dice, 1, quiet_at, before=2)
    return first, round(min(first + dice.choice((0.01, 0.5, 3.0, 10.0)), quiet_at - 0.5), 3)


def after(dice: Random, at: float, quiet_at: float) -> float:
    """Return a moment after another one: at once, while a pod is being bound, or much later."""
    wait = dice.choice((dice.uniform(0, 0.05), dice.uniform(0, 2.0), dice.uniform(2, 30)))
    return round(min(at + wait, quiet_at - 0.5), 3)


SIZES: Final = {
    "trn1.32xlarge": (1, 1, 4, 4, 4, 8, 8, 16),
    "trn2.48xlarge": (1, 4, 4, 8, 16),
    "inf2.48xlarge": (1, 2, 3, 6, 12),
    "inf2.24xlarge": (1, 2, 3, 6),
    "inf2.xlarge": (1,),
    "inf1.6xlarge": (1, 2, 3, 4),
    "inf1.24xlarge": (1, 2, 5, 8),
    "m5.xlarge": (1,),
}
OTHER_NAMESPACE: Final = "research"
MOST_PODS: Final = 40
"""Pods of a scenario that users create themselves."""

Nodes = Sequence[tuple[str, str]]


def deeds_of_pods(dice: Random, nodes: Nodes, quiet_at: float, *, controllers: bool) -> list[Deed]:
    """Return what users do with pods."""
    chosen: list[Deed] = []
    pods = _pods(dice, nodes)
    burst = dice.random() < 0.3
    for group in pods:
        early = burst or dice.random() < 0.25
        at = round(dice.uniform(0.1, 4.0 if early else quiet_at * 0.9), 3)
        for pod in group:
            chosen.append(CreatePod(at=at, pod=pod))
            chosen.extend(_life(dice, pod, at, quiet_at))
    everyone = [pod for group in pods for pod in group]
    chosen.extend(
        BindElsewhere(at=moment(dice, 1, quiet_at), name=pod.name, namespace=pod.namespace, node="n1")
        for pod in dice.sample(everyone, dice.choice((0, 0, 1, 2)))
    )
    if dice.random() < 0.2:
        chosen.append(CreateBudget(at=0.0, app="serve", allowed=dice.choice((0, 1))))
    if dice.random() < 0.08:
        chosen.append(DeleteNamespace(at=moment(dice, 5, quiet_at), name=OTHER_NAMESPACE))
    return chosen + (_workloads(dice, nodes, quiet_at) if controllers else [])


def _pods(dice: Random, nodes: Nodes) -> list[list[PodPlan]]:
    """Return pods in groups of equal ones that ask for about what the nodes have, mostly for more."""
    capacity = sum(INSTANCE_TYPES[instance_type].devices for _, instance_type in nodes)
    wanted = capacity * dice.choice((0.7, 1.0, 1.3, 1.7, 2.2))
    groups: list[list[PodPlan]] = []
    asked, count = 0.0, 0
    while count < 8 or (asked < wanted and count < MOST_PODS):
        pod = _pod(dice, "p", dice.choice(nodes)[1])
        equal = dice.choice((1, 1, 1, 2, 4, dice.randint(3, 8)))
        groups.append([attrs.evolve(pod, name=f"p{number}") for number in range(count, count + equal)])
        asked += equal * (sum(pod.devices) + sum(pod.cores) / 2)
        count += equal
    return groups


def _pod(dice: Random, name: str, instance_type: str) -> PodPlan:
    machine, kind = INSTANCE_TYPES[instance_type], dice.random()
    devices: tuple[int, ...] = ()
    cores: tuple[int, ...] = ()
    if kind < 0.7:
        devices = (dice.choice(SIZES[instance_type]),)
    elif kind < 0.77:
        devices = (dice.choice((1, 4)), 1)
    elif kind < 0.9:
        cores = (dice.choice((1, 1, 2, max(machine.cores_per_device, 1), 4)),)
    return PodPlan(
        name=name,
        namespace=OTHER_NAMESPACE if dice.random() < 0.15 else "default",
        devices=devices,
        cores=cores,
        cpu=dice.choice((100, 100, 100, 1000, 3000)),
        priority=dice.choice(("", "", "", "", "", "low", "high", "urgent")),
        instance_type=instance_type if dice.random() < 0.3 else "",
        app=dice.choice(("train", "train", "serve", "web")),
        alone=dice.random() < 0.05,
        gated=dice.random() < 0.07,
        finalized=dice.random() < 0.05,
        tolerant=dice.random() < 0.1,
        seconds=round(dice.uniform(2, 25), 1) if dice.random() < 0.5 else 0.0,
        grace=dice.choice((0, 1, 30, 30)),
        scheduler="default-scheduler" if dice.random() < 0.03 else "my-scheduler",
    )


def _life(dice: Random, pod: PodPlan, at: float, quiet_at: float) -> list[Deed]:
    """Return what happens to a pod after its creation."""
    chosen: list[Deed] = []
    place = {"name": pod.name, "namespace": pod.namespace}
    if pod.gated:
        chosen.append(OpenGate(at=after(dice, at, quiet_at), **place))
    if pod.finalized:
        chosen.append(Finalize(at=round(quiet_at - dice.uniform(0.1, 3), 3), **place))
    if dice.random() < 0.12:
        chosen.append(Annotate(at=after(dice, at, quiet_at), value=str(dice.randint(1, 99)), **place))
    if dice.random() < 0.08:
        chosen.append(AddCondition(at=after(dice, at, quiet_at), **place))
    fate = dice.random()
    if fate < 0.15 or pod.finalized:
        chosen.append(DeletePod(at=after(dice, at, quiet_at), forced=dice.random() < 0.3, **place))
    elif fate < 0.25:
        other = _pod(dice, pod.name, dice.choice(list(SIZES)))
        again = attrs.evolve(other, namespace=pod.namespace, gated=False, finalized=False)
        chosen.append(RecreatePod(at=after(dice, at, quiet_at), pod=again))
    return chosen


def _workloads(dice: Random, nodes: Nodes, quiet_at: float) -> list[Deed]:
    """Return a Job or a Deployment that is scaled."""
    plain = attrs.evolve(_pod(dice, "workload", dice.choice(nodes)[1]), gated=False, finalized=False, app="workload")
    at = moment(dice, 0.1, quiet_at)
    if dice.random() < 0.5:
        return [CreateJob(at=at, pod=plain, count=dice.randint(1, 5))]
    pod, place = attrs.evolve(plain, seconds=0.0), {"name": plain.name, "namespace": plain.namespace}
    scale = ScaleDeployment(at=after(dice, at, quiet_at), count=dice.randint(0, 5), **place)
    return [CreateDeployment(at=at, pod=pod, count=dice.randint(1, 4)), scale]


TYPES: Final = (
    *("trn1.32xlarge", "trn1.32xlarge", "trn1.32xlarge", "inf2.48xlarge", "inf2.24xlarge", "inf2.xlarge"),
    *("trn2.48xlarge", "inf1.6xlarge", "inf1.24xlarge", "m5.xlarge"),
)
MOST_NODES: Final = 6


def nodes_of(dice: Random) -> tuple[tuple[str, str], ...]:
    """Return the names and types of a few nodes, at least one of which has Neuron devices."""
    count = dice.choice((1, 2, 2, 3, 4, MOST_NODES))
    first = dice.choice([each for each in TYPES if each != "m5.xlarge"])
    return (("n1", first), *((f"n{number}", dice.choice(TYPES)) for number in range(2, count + 1)))


def deeds_of_nodes(dice: Random, nodes: Sequence[tuple[str, str]], quiet_at: float) -> list[Deed]:
    """Return what happens to nodes, and what is stored that nobody can read."""
    chosen: list[Deed] = []
    for _ in range(dice.choice((0, 0, 1, 2, 4))):
        node, instance_type = dice.choice(nodes)
        chosen.extend(dice.choice(_KINDS)(dice, node, instance_type, quiet_at))
    if dice.random() < 0.2:
        for number in range(dice.choice((1, 3))):
            chosen.extend(_poison(dice, f"bad{number}", quiet_at))
    return chosen


def _poison(dice: Random, name: str, quiet_at: float) -> list[Deed]:
    kind, at = dice.choice(poison.KINDS), moment(dice, 0.1, quiet_at)
    node = "n1" if kind in poison.PODS_OF and dice.random() < 0.3 else ""
    stored: list[Deed] = [Poison(at=at, kind=kind, name=name, node=node)]
    removed = RemovePoison(at=after(dice, at, quiet_at), kind=kind, name=name)
    return [*stored, removed] if node or dice.random() < 0.5 else stored


def _cordoned(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    first, second = pair(dice, quiet_at)
    return [Cordon(at=first, node=node), Cordon(at=second, node=node, ends=True)]


def _tainted(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    first, second = pair(dice, quiet_at)
    effect = dice.choice(("NoSchedule", "PreferNoSchedule"))
    return [Taint(at=first, node=node, effect=effect), Taint(at=second, node=node)]


def _unhealthy(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    first, second = pair(dice, quiet_at)
    fewer, all_again = (
        SetHealthy(at=first, node=node, missing=dice.choice((1, 2, 99))),
        SetHealthy(at=second, node=node, missing=0),
    )
    return [fewer, all_again] if dice.random() < 0.7 else [fewer]


def _replaced(dice: Random, node: str, instance_type: str, quiet_at: float) -> list[Deed]:
    """The node is deleted and comes back under its pods, sometimes as a machine of another type."""
    first, second = pair(dice, quiet_at)
    new_type = dice.choice((instance_type, instance_type, dice.choice(TYPES)))
    return [DeleteNode(at=first, node=node), CreateNode(at=second, node=node, instance_type=new_type)]


def _removed(dice: Random, node: str, _type: str, quiet_at: float) -> list[Deed]:
    return [DeleteNode(at=moment(dice, 1, quiet_at), node=node)]


def _joined(dice: Random, _node: str, _type: str, quiet_at: float) -> list[Deed]:
    name = f"n{dice.randint(MOST_NODES + 1, MOST_NODES + 3)}"
    return [CreateNode(at=moment(dice, 1, quiet_at), node=name, instance_type=dice.choice(TYPES))]


_KINDS: Final[Sequence[Callable[[Random, str, str, float], list[Deed]]]] = (
    *(_cordoned, _tainted, _unhealthy, _replaced, _replaced, _removed, _joined),
)
