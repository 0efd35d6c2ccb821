"""
Devices that drivers publish, and claims on them, as the API server has them (`resource.k8s.io/v1`).

The API grows by several fields a release. What has a field that is not served says so in `unserved`, in words for a
person, and is not used: a field is never guessed.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs

from neuron_scheduler.model.selectors import NodeSelectorTerm, Taint, Toleration
from neuron_scheduler.model.version import Version

NEURON_DRIVER: Final = "neuron.aws.com"
PROTECTION: Final = "resource.kubernetes.io/delete-protection"
NO_CLASS: Final = "does not exist"
"""How the refusal of a pod ends whose device class is missing; upstream, too, waits for that as `Unschedulable`."""
NEVER: Final = "node(s) publish no devices for all claims, even when they are empty"

AttributeValue: TypeAlias = bool | int | str | Version


@attrs.frozen(cache_hash=True)
class Device:
    """
    A device of a slice; equal if its driver has written the same.

    Attributes:
        pool: of devices of a node; empty if it is named like that.
        attributes: by names with a domain, such as `neuron.aws.com/deviceId`.
        capacity: quantities, by names with a domain.
        taints: without those that only inform.
    """

    driver: str
    source: bytes = attrs.field(repr=False)
    name: str = attrs.field(eq=False)
    attributes: Mapping[str, AttributeValue] = attrs.field(eq=False)
    capacity: Mapping[str, str] = attrs.field(eq=False)
    taints: tuple[Taint, ...] = ()
    unserved: str = ""
    pool: str = ""

    @property
    def is_neuron(self) -> bool:
        return self.driver == NEURON_DRIVER


@attrs.frozen
class ResourceSlice:
    """
    A part of a pool of devices.

    Attributes:
        generation: of the pool; only slices of the highest one count.
        slice_count: how many slices the pool has in this generation.
        node_name: whose devices these are; empty if that is not served.
    """

    uid: str
    name: str
    driver: str
    pool: str
    generation: int
    slice_count: int
    node_name: str
    devices: tuple[Device, ...]
    unserved: str = ""


@attrs.frozen
class DeviceClass:
    """
    What requests of a class have in common.

    Attributes:
        selectors: expressions that all must be true of a device.
        config: opaque parameters for drivers, each as the JSON of `opaque`, byte for byte.
    """

    uid: str
    name: str
    selectors: tuple[str, ...]
    config: tuple[bytes, ...] = ()
    unserved: str = ""


@attrs.frozen
class DeviceTaintRule:
    """Taints the devices that it selects, if it does not only inform; None selects all, an empty text none."""

    uid: str
    name: str
    taints: tuple[Taint, ...]
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    unserved: str = ""


@attrs.frozen(cache_hash=True)
class DeviceRequest:
    """
    A request of a claim.

    Attributes:
        count: of devices; 0 for all that match.
        tolerations_json: the tolerations as they are in the claim.
        claim: its claim's number among those of a pod that want devices.
        class_config: opaque parameters of its class, known once it is a pod's.
    """

    name: str
    class_name: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    tolerations_json: bytes = b""
    claim: int = 0
    class_config: tuple[bytes, ...] = ()


@attrs.frozen
class MatchAttribute:
    """The devices of these requests, or of all if none are named, have the same value of an attribute."""

    attribute: str
    requests: tuple[str, ...] = ()


@attrs.frozen
class ClaimConfig:
    """Opaque parameters for a driver (`opaque`, byte for byte) and these requests, or all if none are named."""

    opaque: bytes
    requests: tuple[str, ...] = ()


@attrs.frozen(cache_hash=True)
class DeviceKey:
    """What identifies a device in the cluster."""

    driver: str
    pool: str
    name: str


@attrs.frozen
class ClaimAllocation:
    """
    The devices that a claim has.

    Attributes:
        devices: without those that it only observes (adminAccess).
        on: the nodes where they can be used; None for every node.
    """

    devices: tuple[DeviceKey, ...]
    on: tuple[NodeSelectorTerm, ...] | None = None


@attrs.frozen
class ResourceClaim:
    """
    A claim on devices.

    Attributes:
        owner_uid: of its controller: the pod for which it was made from a template; empty if a user made it.
        reserved_for: the pods that may use it, names by uid.
        reserved_for_others: something else than a pod may use it.
    """

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    owner_uid: str = ""
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[MatchAttribute, ...] = ()
    config: tuple[ClaimConfig, ...] = ()
    unserved: str = ""
    allocation: ClaimAllocation | None = None
    reserved_for: Mapping[str, str] = attrs.Factory(dict)
    reserved_for_others: bool = False
    terminating: bool = False
    finalizers: tuple[str, ...] = attrs.field(default=(), eq=False)  # they mean nothing to a pod

    @property
    def is_protected(self) -> bool:
        """Whether it has the finalizer without which its devices stay held for ever."""
        return PROTECTION in self.finalizers

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@attrs.frozen
class ClaimWrite:
    """
    What one of a pod's claims is to have before the pod is bound.

    Attributes:
        claim: as it was when the pod was decided.
        node_name: of the pod.
        results: the devices that its requests get, if it has none yet.
    """

    claim: ResourceClaim
    node_name: str
    results: tuple[tuple[DeviceRequest, DeviceKey], ...] = ()

    @property
    def devices(self) -> set[DeviceKey]:
        has = self.claim.allocation
        return {key for _, key in self.results} if has is None else {*has.devices}


@attrs.frozen(cache_hash=True)
class WantedDevices:
    """
    What a pod's claims ask for; equal for the pods of a workload.

    Attributes:
        requests: with the selectors of their classes before their own.
        constraints: an attribute, and the numbers of the requests whose devices have the same value of it.
    """

    requests: tuple[DeviceRequest, ...]
    constraints: tuple[tuple[str, tuple[int, ...]], ...] = ()


@attrs.frozen(cache_hash=True)
class ClaimReference:
    """
    A claim of a pod.

    Attributes:
        name: in the pod's spec.
        claim_name: of the claim; empty while a claim of a template is not made, None if none is needed.
        is_generated: it is made from a template, for this pod alone.
    """

    name: str
    claim_name: str | None = ""
    is_generated: bool = False


DeviceObject: TypeAlias = ResourceSlice | DeviceClass | ResourceClaim | DeviceTaintRule
