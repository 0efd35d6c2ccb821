"""
Collects decoded objects of all kinds, and makes a `Capture` of them.

The objects are folded into the cluster as in the running process, in the order in which its informers list. So both
have the same cluster, but here are no assumed pods, no rejected pods and no queue.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.capture.pinned_pods import pods_noting
from neuron_scheduler.cluster import fold
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.kube.objects.base import Decoded, Malformed, Resource
from neuron_scheduler.kube.objects.devices import CLAIM_KINDS, TAINT_RULES
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.objects.pods import PODS, unreadable_pod
from neuron_scheduler.kube.objects.watched import OTHER_KINDS
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import count_text
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.preemption.nominations import rebuild

NAMED: Final = 3
"""So many objects are named in a note."""


def _or_default(profiles: Sequence[Profile]) -> Sequence[Profile]:
    return profiles or (default_profile("my-scheduler"),)


@attrs.frozen(eq=False, kw_only=True)
class Capture:
    """
    What was read of a cluster.

    Attributes:
        cluster: with the pods on nodes, and the space that is kept for pending pods.
        pods: all pods that have not ended, by `namespace/name`.
        waiting: those of them that have no node and are not being deleted, of every scheduler, oldest first.
        notes: what could not be read, or only in part, and what that means; one sentence each.
        taken: when, in seconds since the epoch.
        unreadable: reasons why pods cannot be read, by key.
        pinned: the keys of pods that choose their cores or devices themselves.
    """

    cluster: Cluster
    pods: Mapping[str, Pod]
    waiting: tuple[Pod, ...]
    notes: tuple[str, ...] = ()
    taken: float = 0.0
    unreadable: Mapping[str, Malformed] = attrs.field(factory=dict)
    pinned: frozenset[str] = frozenset()


OPTIONAL_KINDS: Final = (*CLAIM_KINDS, TAINT_RULES, *POD_GROUPS)
"""They are not missed where they are not served, or not used."""


@attrs.define(eq=False, kw_only=True)
class Collection:
    """
    What has been read so far.

    Attributes:
        taken: as in `Capture`.
        profiles: of the scheduler; they decide for which pods space is kept, and where that still fits. Without any it
            is that of an installation without a configuration.
        cluster: what has been folded so far.
    """

    taken: float
    profiles: Sequence[Profile] = attrs.field(default=(), converter=_or_default)
    cluster: Cluster = attrs.field(factory=Cluster, init=False)
    _lists: dict[Resource[Any], list[Decoded[Any]]] = attrs.field(
        factory=lambda: {resource: [] for resource in (NODES, *OTHER_KINDS, *OPTIONAL_KINDS, PODS)}, init=False
    )
    _notes: list[str] = attrs.field(factory=list, init=False)
    _pinned: set[str] = attrs.field(factory=set, init=False)
    _failed: int = attrs.field(default=0, init=False)

    @property
    def resources(self) -> tuple[Resource[Any], ...]:
        """The kinds that the scheduler watches, some only where served, in the order in which it lists them."""
        return tuple(self._lists)

    def add(self, resource: Resource[Any], decoded: Decoded[Any]) -> None:
        """Add an object of one of the `resources`; a later state of the same object replaces an earlier one."""
        for profile in self.profiles:  # a pod is taken as its profile decides it
            if isinstance(decoded.value, Pod) and decoded.value.scheduler_name == profile.scheduler_name:
                decoded = attrs.evolve(decoded, value=profile.own(decoded.value))
        self._lists[resource].append(decoded)
        if resource in CLAIM_KINDS and self.cluster.claims is None:
            self.cluster.claims = Claims()

    def reader_of(self, resource: Resource[Any]) -> Resource[Any]:
        """Return by what objects of a kind are read: of pods it is noted which choose their cores."""
        return pods_noting(self._pinned) if resource is PODS else resource

    def note(self, sentence: str) -> None:
        self._notes.append(sentence)

    def has(self, resource: Resource[Any]) -> bool:
        return bool(self._lists[resource])

    def capture(self) -> Capture:
        """Return the cluster; nothing may be added afterwards."""
        self.cluster.groups.served = frozenset([profile.scheduler_name for profile in self.profiles])
        self._lists = {resource: _latest(decoded) for resource, decoded in self._lists.items()}
        self._lists[PODS] = list(_with_uids(self._lists[PODS]))
        for resource, decoded in self._lists.items():
            decoded.sort(key=resource.position)
            for each in decoded:
                self._fold(each)
        values = (each.value for each in self._lists[PODS])
        pods = {pod.key: self.cluster.with_claims(pod) for pod in values if isinstance(pod, Pod)}
        waiting = [pod for pod in pods.values() if not (pod.node_name or pod.terminating)]
        self._keep_nominated_space(waiting)
        return Capture(
            cluster=self.cluster,
            pods=pods,
            waiting=tuple(sorted(waiting, key=PODS.sort_key)),
            notes=(*self._notes, *self._notes_on_unreadable()),
            taken=self.taken,
            unreadable={m.key: m for m in self._malformed_of(PODS) if m.key and m.key not in pods},
            pinned=frozenset(self._pinned),
        )

    def _fold(self, decoded: Decoded[Any]) -> None:
        """Take an object in; a pod on a node with which that fails is an unknown holder there."""
        value = decoded.value
        try:
            if isinstance(value, Malformed):
                if value.node_name and value.uid:
                    fold.put_unreadable(self.cluster, unreadable_pod(value))
            elif value is not None:
                fold.put(self.cluster, None, value)
        except Exception:  # noqa: BLE001 - a mistake of ours is noted, and must affect no other object
            self._failed += 1
            if isinstance(value, Pod):
                fold.remove(self.cluster, value)
                fold.put_unreadable(self.cluster, value)

    def _keep_nominated_space(self, waiting: Iterable[Pod]) -> None:
        """
        Keep the space that a scheduler has freed for a pod, in the order of the queue.

        The process also keeps space for a pod of its own while a volume is provisioned for it on some node.
        """
        ours = {profile.scheduler_name: profile for profile in self.profiles}
        for pod in sorted(waiting, key=lambda pod: (-pod.priority, pod.created, pod.key)):
            profile = ours.get(pod.scheduler_name)
            node_name = pod.nominated_node_name or ("" if profile is None else self._node_of_volumes(pod))
            if node_name and (profile is not None or pod.neuron is not None):
                pending = attrs.evolve(pod, nominated_node_name=node_name)
                nomination = rebuild(self.cluster, pending, profile or self.profiles[0])
                if nomination is not None:
                    self.cluster.nominate(node_name, nomination)

    def _node_of_volumes(self, pod: Pod) -> str:
        """Return the node for which a volume of a pod is to be provisioned; empty if there is none."""
        claims = (self.cluster.volumes.claim(f"{pod.namespace}/{name}") for name in pod.constraints.volume_claims)
        return next((c.selected_node for c in claims if c and c.selected_node and not c.is_fully_bound), "")

    def _malformed_of(self, resource: Resource[Any]) -> Iterator[Malformed]:
        return (decoded.value for decoded in self._lists[resource] if isinstance(decoded.value, Malformed))

    def _notes_on_unreadable(self) -> Iterator[str]:
        values = (decoded.value for decoded in self._lists[NODES])
        nodes = [node for node in values if isinstance(node, Node) and node.refusal]
        if nodes:
            named = _names_text(f"{node.name}: {node.refusal}" for node in nodes)
            yield f"{count_text(len(nodes), 'node')} cannot be read, and no pod is placed there ({named})"
        for resource in self._lists:
            found = {malformed.key or malformed.reason: malformed for malformed in self._malformed_of(resource)}
            if found:
                meaning = "what they use of their nodes counts as unknown" if resource is PODS else "they are left out"
                named = _names_text(f"{each.key or '(no name)'}: {each.reason}" for each in found.values())
                yield f"{count_text(len(found), resource.kind)} cannot be read; {meaning} ({named})"
        if self._failed:
            yield f"{count_text(self._failed, 'object')} could not be taken in because of a mistake in this program"


def _latest(decoded: list[Decoded[Any]]) -> list[Decoded[Any]]:
    """Return the objects without earlier states of the same ones: a list has each once, several files may not."""
    latest = {each.key or f"(no name {number})": each for number, each in enumerate(decoded)}
    return list(latest.values())


def _with_uids(pods: Iterable[Decoded[Pod]]) -> Iterator[Decoded[Pod]]:
    """Give each key a uid of its own: of two pods with one uid, as in a file by hand, the first would get lost."""
    keys: dict[str, str] = {}
    for number, decoded in enumerate(pods):
        uid, value = decoded.uid, decoded.value
        if isinstance(value, Malformed):
            uid = value.uid
        key = decoded.key or f"(no name {number})"
        if not uid or keys.setdefault(uid, key) != key:
            uid = f"{uid}/{key}"
            value = None if value is None else attrs.evolve(value, uid=uid)
            yield attrs.evolve(decoded, uid=uid, value=value)
        else:
            yield decoded


def _names_text(names: Iterable[str]) -> str:
    every = list(names)
    more = len(every) - NAMED
    return "; ".join([*every[:NAMED], *([f"and {more} more"] if more > 0 else [])])
