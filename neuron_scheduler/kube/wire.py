"""
The fields of API objects that we need, as they are spelled on the wire; everything else is skipped while decoding.

`gc=False` keeps the collector out: none of these can be part of a cycle. Optional containers are `X | None`, because an
explicit `null` would otherwise cost the whole object. Holds no logic; `codec` gives these their meaning.
"""

import datetime as dt

import msgspec

Quantities = dict[str, str | int]


class Wire(msgspec.Struct, gc=False, rename="camel"):
    """What all of these have in common: an inheritance that msgspec asks for, to set options once."""


class ListMeta(Wire):
    """`metadata` of a list, or all that a bookmark carries."""

    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class List(msgspec.Struct):
    """A list whose items are decoded one by one, so that a malformed one costs only itself."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class Bookmark(Wire):
    """The object of a BOOKMARK event."""

    metadata: ListMeta


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class StatusDetails(Wire):
    """`details` of a Status."""

    kind: str | None = None
    retry_after_seconds: int | None = None


class Status(Wire):
    """What the API server answers in place of an object."""

    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


class OwnerReference(Wire):
    """One of an object's owners."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class ObjectMeta(Wire):
    """`metadata` of a pod or node."""

    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: dt.datetime | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Identity(Wire):
    """What must be readable for a malformed object to be told from others."""

    name: str = ""
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""


class Identified(Wire):
    """A malformed object, as far as its identity."""

    metadata: Identity


class Expression(Wire):
    """A requirement of a label selector or node selector term."""

    key: str
    operator: str
    values: list[str] | None = None


class Selector(Wire):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class NodeTerm(Wire):
    """A node selector term."""

    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeTerms(Wire):
    """A node selector."""

    node_selector_terms: list[NodeTerm] | None = None


class PreferredNodeTerm(Wire):
    """A weighted node selector term."""

    weight: int
    preference: NodeTerm


class NodeAffinity(Wire):
    """`spec.affinity.nodeAffinity`."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] | None = None


class PodTerm(Wire):
    """A pod (anti-)affinity term."""

    topology_key: str = ""
    label_selector: Selector | None = None
    namespaces: list[str] | None = None
    namespace_selector: Selector | None = None


class PreferredPodTerm(Wire):
    """A weighted pod (anti-)affinity term."""

    weight: int
    pod_affinity_term: PodTerm


class PodAffinity(Wire):
    """`spec.affinity.podAffinity` or `podAntiAffinity`."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] | None = None


class Affinity(Wire):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Wire):
    """A topology spread constraint."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: Selector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class Toleration(Wire):
    """A toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Resources(Wire):
    """`resources` of a container or pod."""

    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(Wire):
    """A container's port."""

    container_port: int = 0
    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class Container(Wire):
    """A container or init container."""

    name: str
    image: str | None = None
    resources: Resources | None = None
    ports: list[Port] | None = None
    restart_policy: str | None = None


class Present(Wire):
    """Something of which only the presence matters."""


class Claim(Wire):
    """`persistentVolumeClaim` of a volume."""

    claim_name: str


class EbsDisk(Wire):
    """`awsElasticBlockStore`."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class GceDisk(Wire):
    """`gcePersistentDisk`."""

    pd_name: str = ""
    read_only: bool | None = None


class AzureDisk(Wire):
    """`azureDisk`."""

    disk_uri: str = msgspec.field(default="", name="diskURI")


class Disk(EbsDisk):
    """`cinder` or `portworxVolume`."""


class InTree(Wire):
    """Sources of a pod's or persistent volume whose plugins were once in Kubernetes, and are CSI drivers now."""

    aws_elastic_block_store: EbsDisk | None = None
    gce_persistent_disk: GceDisk | None = None
    azure_disk: AzureDisk | None = None
    cinder: Disk | None = None
    portworx_volume: Disk | None = None


class ImageVolume(Wire):
    """`image` of a volume."""

    reference: str | None = None


class Volume(InTree, kw_only=True):
    """A volume, as far as its source can tie the pod to a node or zone."""

    name: str
    persistent_volume_claim: Claim | None = None
    ephemeral: Present | None = None
    image: ImageVolume | None = None
    iscsi: Present | None = None
    photon_persistent_disk: Present | None = None
    rbd: Present | None = None


class Named(Wire):
    """A scheduling gate or resource claim."""

    name: str


class PlacedSpec(Wire):
    """What of a pod's `spec` tells whether it is bound, or could be."""

    node_name: str | None = None
    scheduling_gates: list[Named] | None = None


class Placed(Wire):
    """A malformed pod, as far as its node."""

    spec: PlacedSpec


class PodSpec(Wire):
    """`spec` of a pod."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    host_network: bool | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Quantities | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[Spread] | None = None
    volumes: list[Volume] | None = None
    scheduling_gates: list[Named] | None = None
    resource_claims: list[Named] | None = None
    preemption_policy: str | None = None


class Condition(Wire):
    """A condition of a pod or node."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class ContainerStatus(Wire):
    """What a container was really given (in-place resize)."""

    name: str
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class PodStatus(Wire):
    """`status` of a pod."""

    phase: str | None = None
    start_time: dt.datetime | None = None
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Wire):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus | None = None


class PlacedPod(Wire):
    """A pod as far as its binding: what is read back to learn whether ours was the one."""

    metadata: ObjectMeta
    spec: PlacedSpec


class Taint(Wire):
    """A taint."""

    key: str
    effect: str
    value: str | None = None


class NodeSpec(Wire):
    """`spec` of a node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class Image(Wire):
    """A container image on a node."""

    names: list[str] | None = None
    size_bytes: int | None = None


class NodeStatus(Wire):
    """`status` of a node."""

    allocatable: Quantities | None = None
    capacity: Quantities | None = None
    conditions: list[Condition] | None = None
    images: list[Image] | None = None


class Namespace(Wire):
    """A namespace."""

    metadata: ObjectMeta


class Node(Wire):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
