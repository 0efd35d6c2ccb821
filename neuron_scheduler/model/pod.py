"""
A pod as the scheduler sees it: only what a decision, the accounts or a message need.

A pod that could not be read at all is `Malformed` and never gets here. One that cannot be served has a `refusal`.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

import attrs

from neuron_scheduler.model.devices import ClaimReference, DeviceKey
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.pod_group import PodGroup
from neuron_scheduler.model.resources import NOTHING, Resources
from neuron_scheduler.model.selectors import (
    NO_LABELS,
    NodeSelectorTerm,
    PodAffinityTerm,
    PreferredTerm,
    SpreadConstraint,
    Toleration,
)
from neuron_scheduler.model.volumes import InlineVolume

PINS: Final = ("NEURON_RT_VISIBLE_CORES", "NEURON_VISIBLE_DEVICES")
"""The variables by which the Neuron runtime, and vLLM, learn which cores and devices they have."""
CLAIM_GATE: Final = "resource claims"
"""Stands among a pod's gates while one of its resource claims is missing or somebody else's."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
"""The name of kube-scheduler's default profile, which pods have that name none."""
FEW_COMPARISONS: Final = 16
"""Up to so many terms and requirements, all other pods can be compared in one step."""


@attrs.frozen(cache_hash=True)
class HostPort:
    """A port of the node; `ip` is `0.0.0.0` where the pod names none."""

    protocol: str
    port: int
    ip: str = "0.0.0.0"  # noqa: S104 - the wildcard is the API's own default, nothing listens here


@attrs.frozen
class PodCondition:
    """The PodScheduled condition as the API server has it."""

    status: str
    reason: str = ""
    message: str = ""


@attrs.frozen
class Constraints:
    """
    The parts of a pod's spec that most pods leave out.

    Attributes:
        required_terms: `requiredDuringSchedulingIgnoredDuringExecution`, OR over terms; None if absent, and an
            empty tuple matches no node.
        affinity, anti_affinity: required pod (anti-)affinity terms.
        spread: topology spread constraints, hard and soft.
        volume_claims: names of PersistentVolumeClaims, generic ephemeral volumes included as `<pod>-<volume>`.
        ephemeral_claims: those of `volume_claims` that belong to a generic ephemeral volume.
        disks: inline volumes of in-tree plugins that CSI drivers serve.
        inline_volumes: in-tree inline volumes tied to a node or zone, which no CSI driver serves.
        claimed_on: for each of its claims that has devices, where these can be used, OR over terms.
        required_features: those that a node's kubelet has to declare, because not every kubelet has them.
    """

    node_selector: Mapping[str, str] = NO_LABELS
    required_terms: tuple[NodeSelectorTerm, ...] | None = None
    preferred_terms: tuple[PreferredTerm, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    preferred_affinity: tuple[PodAffinityTerm, ...] = ()
    preferred_anti_affinity: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    volume_claims: tuple[str, ...] = ()
    ephemeral_claims: tuple[str, ...] = ()
    disks: tuple[InlineVolume, ...] = ()
    inline_volumes: tuple[str, ...] = ()
    resource_claims: tuple[str, ...] = ()
    claimed_on: tuple[tuple[NodeSelectorTerm, ...], ...] = ()
    required_features: tuple[str, ...] = ()

    @property
    def terms_about_pods(self) -> tuple[PodAffinityTerm, ...]:
        return (*self.affinity, *self.anti_affinity, *self.preferred_affinity, *self.preferred_anti_affinity)

    @property
    def comparisons(self) -> int:
        """The number of terms and requirements with which every other pod may have to be compared."""
        selectors = [term.selector for term in self.terms_about_pods] + [spread.selector for spread in self.spread]
        return sum([1 + len(selector.requirements) for selector in selectors if selector is not None])


NO_CONSTRAINTS = Constraints()


@attrs.frozen(cache_hash=True)
class Owner:
    """The controller that a pod's ownerReferences name."""

    api_version: str
    kind: str
    name: str


@attrs.frozen
class Pod:
    """
    One pod.

    Attributes:
        uid: a recreated pod of the same name has another.
        created, started: seconds since the epoch; `started` is None before its kubelet has seen it.
        requests: effective requests (`resources.effective_requests`).
        neuron: the request for Neuron; None if there is none, or if it is refused (`refusal`).
        neuron_containers: names that belong to `neuron.counts` and `neuron.init_counts`.
        images: of init and app containers in that order, each with tag or digest.
        volume_images: of image volumes.
        allocation: the allocation annotations only (`annotations.ALLOCATION_KEYS`), as they are, readable or not.
        annotations_size: bytes of all annotation keys and values together; a Binding must keep them under 256 KiB.
        refusal: why this pod can never be bound by us, in words for its owner; empty if it can.
        terminating: has a deletionTimestamp; it still holds its allocation.
        gates: names of scheduling gates that are still there.
        scheduled: its PodScheduled condition.
        owner: its controller.
        preempted: when its deletion was asked for, in seconds since the epoch, if a scheduler has chosen it as a victim
            of preemption (by its condition DisruptionTarget); infinite before that, 0 if it is none.
        admitted: its kubelet has admitted it, so the device plugin has handed out its ids, if it has any.
        group: the pods with which it starts; None for a pod by itself.
        rank: its number among them, the order in which members are placed.
        claims: its references to claims on devices.
        open_claims: the uids of its claims without devices, in the order in which `neuron` asks for them.
        devices: what its claims have been given.
        parts: how many parts it has of what the API server does not limit, such as labels and values; 0 for few.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    created: float = 0.0
    labels: Mapping[str, str] = NO_LABELS
    scheduler_name: str = DEFAULT_SCHEDULER
    node_name: str = ""
    nominated_node_name: str = ""
    priority: int = 0
    requests: Resources = NOTHING
    neuron: NeuronRequest | None = None
    neuron_containers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    volume_images: tuple[str, ...] = ()
    allocation: Mapping[str, str] = NO_LABELS
    annotations_size: int = 0
    refusal: str = ""
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    constraints: Constraints = NO_CONSTRAINTS
    terminating: bool = False
    gates: tuple[str, ...] = ()
    scheduled: PodCondition | None = None
    observed_generation: int = 0
    owner: Owner | None = None
    never_preempts: bool = False
    started: float | None = None
    preempted: float = 0.0
    admitted: bool = False
    group: PodGroup | None = None
    rank: int = 0
    claims: tuple[ClaimReference, ...] = ()
    open_claims: tuple[str, ...] = ()
    devices: tuple[DeviceKey, ...] = ()
    parts: int = 0

    @property
    def refused_because(self) -> str:
        """The message of its condition, while it is pending; empty if nothing has been said."""
        return self.scheduled.message if self.scheduled is not None and self.scheduled.status == "False" else ""

    @property
    def key(self) -> str:
        """`namespace/name`, as kube-scheduler logs it."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_of_every_node(self) -> bool:
        """Whether its owner runs it on each node, and starts it again there: a DaemonSet, or the node (static pods)."""
        return self.owner is not None and (self.owner.api_version, self.owner.kind) in _OF_EVERY_NODE


_OF_EVERY_NODE: Final = (("apps/v1", "DaemonSet"), ("v1", "Node"))
"""Kinds of owners; without an owner of that uid the garbage collector deletes the pod."""
_NAMES: Final = [field.name for field in attrs.fields(Pod)]
_NODE_NAME: Final = _NAMES.index("node_name")
_ALLOCATION: Final = _NAMES.index("allocation")
_values = attrgetter(*_NAMES)


def assigned_pod(pod: Pod, node_name: str, allocation: Mapping[str, str]) -> Pod:
    """Return the pod as it will be on a node; `attrs.evolve` takes three times as long."""
    values = list(_values(pod))
    values[_NODE_NAME], values[_ALLOCATION] = node_name, allocation
    return Pod(*values)
