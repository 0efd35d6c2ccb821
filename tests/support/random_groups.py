"""Random small clusters with a group of pods, so tight that it matters in which order members are placed, and where."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.node import (
    HOSTNAME_LABEL,
    ULTRASERVER_2,
    ULTRASERVER_4,
    ULTRASERVER_PLACES,
    ZONE_LABEL,
    Node,
)
from neuron_scheduler.model.pod import HostPort, Pod, assigned_pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import (
    Effect,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from neuron_scheduler.model.volumes import Storage
from neuron_scheduler.neuron.annotations import annotations_for
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on
from neuron_scheduler.scheduling.cycle.volume_plan import volume_plan
from tests.support.builders import node, pod
from tests.support.storage import claim, host, stored, volume

PROFILE: Final = default_profile("my-scheduler")
ZEROS: Final = "0" * 16
_KEYS: Final = (ULTRASERVER_4, ULTRASERVER_4, ULTRASERVER_2, ZONE_LABEL, HOSTNAME_LABEL)
_ASKED: Final[Sequence[dict[str, Any]]] = (
    *({"devices": count} for count in (16, 12, 8, (4, 4), 4, 1)),
    *({"cores": count} for count in (1, 2, 5)),
    {"cpu": 90_000},
)
_MEMBERS = LabelSelector((Requirement("job", Operator.IN, ("train",)),))
_FIRSTS = LabelSelector((Requirement("role", Operator.IN, ("0",)),))


@attrs.frozen
class World:
    """A cluster as objects, with a group: some of its members wait, others are bound, and some have a nomination."""

    nodes: tuple[Node, ...]
    bound: tuple[Pod, ...]
    kept: tuple[tuple[str, Nomination], ...]
    storage: tuple[Storage, ...]
    waiting: tuple[Pod, ...]
    group: PodGroup

    @property
    def missing(self) -> int:
        """How many of the waiting members must be placed, or none is."""
        least = self.group.least or len(self.waiting) + len(self._members)
        return max(0, least - len(self._members))

    @property
    def regions(self) -> list[set[str]]:
        """The names of the nodes that the group may use: a set for each domain that would do."""
        key = self.group.topology
        domains: dict[str, set[str]] = {} if key else {"": {each.name for each in self.nodes}}
        for each in self.nodes:
            if key and each.labels.get(key, ZEROS) != ZEROS:
                domains.setdefault(each.labels[key], set()).add(each.name)
        fixed = {each.node_name for each in self._members} & {name for names in domains.values() for name in names}
        return [names for names in domains.values() if fixed <= names]

    @property
    def _members(self) -> list[Pod]:
        return [each for each in self.bound if each.group is not None and each.group.key == self.group.key]

    def cluster(self) -> Cluster:
        """Return the cluster that a scheduler would have."""
        cluster = stored(self.nodes, *self.storage, pods=self.bound)
        for name, nomination in self.kept:
            cluster.nominate(name, nomination)
        for each in (*self.bound, *self.waiting):
            cluster.groups.put(each)
        return cluster


def settled(cluster: Cluster, pod: Pod, decision: Decision) -> Pod:
    """Return a pod as the watch will show it on its node."""
    row, name, placement = cluster.node(decision.node_name), decision.node_name, decision.placement
    if placement is None or row is None or row.machine is None:
        return assigned_pod(pod, name, {})
    return assigned_pod(pod, name, annotations_for(pod=pod, machine=row.machine, placement=placement, node_name=name))


def assume(cluster: Cluster, pod: Pod, decision: Decision) -> Sequence[Any]:
    """Have a pod and its volumes on a node; return what is assumed of volumes."""
    cluster.assume(settled(cluster, pod, decision), _cores(decision))
    plan = volume_plan(cluster, pod, decision.node_name) if pod.constraints.volume_claims else None
    for each in () if plan is None else plan.assumed_objects:
        cluster.volumes.assume(each)
    return () if plan is None else plan.assumed_objects


@contextmanager
def assumed(cluster: Cluster, pod: Pod, decision: Decision) -> Iterator[None]:
    """The same inside the `with` block, with everything as before after it."""
    nomination, volumes = cluster.nomination(pod.uid), assume(cluster, pod, decision)
    yield
    cluster.forget(pod.uid)
    for each in volumes:
        cluster.volumes.restore(each)
    if nomination is not None:
        cluster.nominate(*nomination)


def some_world(dice: Random) -> World:
    """Return a cluster of at most six nodes, and a group of at most six members."""
    nodes = [_node(dice, name, number) for number, name in enumerate("abcdef"[: dice.randint(1, 6)])]
    kinds = [_kind(dice, number, [each.name for each in nodes]) for number in range(dice.choice([1, 1, 2, 3, 5]))]
    size, claims = dice.choice([1, 2, 3, 3, 4, 4, 5, 6]), dice.random() < 0.1
    topology = dice.choice(_KEYS) if dice.random() < 0.3 else ""
    least = min(dice.choice([0, 1, 2, 3, 4, 6]), size)
    group = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), least, dice.randint(0, 6), topology)
    members = [
        pod(f"m{i}", group=group, rank=i, volume_claims=(f"data-{i}",) if claims else (), **dice.choice(kinds))
        for i in range(size)
    ]
    volumes = [volume(f"pv{i}", on=host(dice.choice(nodes).name)) for i in range(size)]
    storage: list[Storage] = [*volumes, *(claim(f"data-{i}") for i in range(size))] if claims else []
    cluster, bound, kept = stored(nodes, *storage), list[Pod](), list[tuple[str, Nomination]]()

    def decided(pod: Pod) -> Iterator[Decision]:
        decision = decide_on(cluster, pod, PROFILE, dice.choice(nodes).name)
        return (each for each in (decision,) if isinstance(each, Decision))

    used = [pod(f"used-{i}", **dice.choice(_ASKED)) for i in range(dice.randint(0, len(nodes)))]
    first = 0 if claims else min(dice.choice([0, 0, 0, 1, 2]), size - 1)
    for each in (*used, *members[:first]):
        for decision in decided(each):
            bound.append(settled(cluster, each, decision))
            cluster.put_pod(bound[-1])
    waiting = [each for each in members if cluster.node_of(each.uid) is None]
    others = [pod(f"kept-{i}", priority=dice.choice([0, 5]), **dice.choice(_ASKED)) for i in range(2)]
    often = dice.choice([0.0, 0.0, 0.2, 0.5])
    for each in (*waiting[:3], *others):
        for decision in decided(each) if dice.random() < often else ():
            kept.append((decision.node_name, Nomination(each, _cores(decision))))
            cluster.nominate(*kept[-1])
    return World(tuple(nodes), tuple(bound), tuple(kept), tuple(storage), tuple(waiting), group)


def _cores(decision: Decision) -> CoreMask:
    return NO_CORES if decision.placement is None else decision.placement.cores


def _node(dice: Random, name: str, number: int) -> Node:
    labels = {
        HOSTNAME_LABEL: name,
        ZONE_LABEL: dice.choice(["x", "y", None]),
        ULTRASERVER_4: dice.choice(["u0", "u0", "u1", ZEROS, None]),
        ULTRASERVER_2: dice.choice(["p0", "p1", ZEROS, None]),
        **{key: str(number % 4) for key in ULTRASERVER_PLACES.values()},
    }
    return node(
        name,
        dice.choice(["trn1.32xlarge", "trn1.32xlarge", "trn2.48xlarge", "inf2.24xlarge"]),
        labels={key: value for key, value in labels.items() if value is not None},
        created=float(number),
        pods=dice.choice([2, 110, 110]),
        taints=(Taint("spot", Effect.NO_SCHEDULE),) if dice.random() < 0.1 else (),
        unschedulable=dice.random() < 0.08,
    )


def _kind(dice: Random, number: int, names: Sequence[str]) -> dict[str, Any]:
    """Return what members of one kind have in common; some take only some nodes."""
    term = PodAffinityTerm(dice.choice(_KEYS), dice.choice([_MEMBERS, _FIRSTS]), frozenset({"default"}))
    spread = SpreadConstraint(dice.choice([HOSTNAME_LABEL, ZONE_LABEL]), 1, hard=True, selector=_MEMBERS)
    asked = {"anti_affinity": term, "affinity": term, "spread": spread, "tolerations": Toleration(exists=True)}
    some: dict[str, Any] = {key: (value,) for key, value in asked.items() if dice.random() < 0.18}
    if dice.random() < 0.4:
        chosen = Requirement(HOSTNAME_LABEL, Operator.IN, tuple(dice.sample(names, dice.randint(1, len(names)))))
        some["required_terms"] = (NodeSelectorTerm((chosen,)),)
    ports = {"host_ports": (HostPort("TCP", 80),)} if dice.random() < 0.15 else {}
    return {**dice.choice(_ASKED), **some, **ports, "labels": {"job": "train", "role": str(number)}}
