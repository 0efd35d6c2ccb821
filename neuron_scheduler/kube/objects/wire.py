"""
What API objects of every kind have in common, as it is spelled on the wire; other fields are skipped.

`gc=False` keeps garbage collection out: none of these can be part of a cycle. Optional containers are `X | None`,
because an explicit `null` would otherwise cost the whole object. Fields of kinds other than pods are in their modules.
"""
# ruff: noqa: D101 - the API's types, documented upstream

import datetime as dt
from typing import Any, Generic, Literal, TypeVar

import msgspec

W = TypeVar("W")

Quantities = dict[str, str | int | float]
"""A person writes numbers; the API server makes texts of them."""


class Wire(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """The base of all structs here: msgspec takes options by inheritance."""


class ListMeta(Wire):
    resource_version: str
    continue_: str | None = msgspec.field(default=None, name="continue")


class List(msgspec.Struct):
    """A list whose items are decoded one by one, so that a malformed one affects no other."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None


class Versioned(Wire):
    """An object of which only the version is read: in a BOOKMARK event, or in the answer to a write."""

    metadata: ListMeta


class Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class WatchChange(msgspec.Struct, Generic[W]):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: W


class StatusDetails(Wire):
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    retry_after_seconds: int | None = None


class Status(Wire):
    """The API server's answer in place of an object."""

    api_version: str = ""
    kind: str = ""
    status: str | None = None
    code: int | None = None
    reason: str | None = None
    message: str | None = None
    details: StatusDetails | None = None


class OwnerReference(Wire):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Wire):
    name: str
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: dt.datetime | None = None
    deletion_timestamp: dt.datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None


class Identity(Wire):
    """The part of `metadata` that identifies the object."""

    name: str = ""
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""


class PartialObject(Wire):
    """What is read of an object that cannot be read as a whole."""

    metadata: Identity
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class Expression(Wire):
    key: str
    operator: str
    values: list[str] | None = None


class Selector(Wire):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class NodeTerm(Wire):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeTerms(Wire):
    node_selector_terms: list[NodeTerm] | None = None


class EbsDisk(Wire):
    volume_id: str = msgspec.field(default="", name="volumeID")


class InTree(Wire):
    """The source of a pod's or persistent volume whose in-tree plugin was replaced by AWS's CSI driver."""

    aws_elastic_block_store: EbsDisk | None = None


class Condition(Wire):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None


class PreferredNodeTerm(Wire):
    weight: int
    preference: NodeTerm


class NodeAffinity(Wire):
    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] | None = None


class PodTerm(Wire):
    topology_key: str = ""
    label_selector: Selector | None = None
    namespaces: list[str] | None = None
    namespace_selector: Selector | None = None


class PreferredPodTerm(Wire):
    weight: int
    pod_affinity_term: PodTerm


class PodAffinity(Wire):
    required_during_scheduling_ignored_during_execution: list[PodTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] | None = None


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Spread(Wire):
    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: Selector | None = None
    match_label_keys: list[str] | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class Toleration(Wire):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class TaintFields(Wire):
    key: str
    effect: str
    value: str | None = None


class Resources(Wire):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(Wire):
    container_port: int = 0
    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class RestartRule(Wire):
    action: str


class Container(Wire):
    name: str
    image: str | None = None
    resources: Resources | None = None
    ports: list[Port] | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None


class Present(Wire):
    """A source of a volume of which only the presence counts."""


class Claim(Wire):
    claim_name: str


class ImageVolume(Wire):
    reference: str | None = None


class Volume(InTree, kw_only=True):
    """A volume with the sources that can tie the pod to a node or zone."""

    name: str
    persistent_volume_claim: Claim | None = None
    ephemeral: Present | None = None
    image: ImageVolume | None = None
    azure_disk: Present | None = None
    cinder: Present | None = None
    gce_persistent_disk: Present | None = None
    iscsi: Present | None = None
    photon_persistent_disk: Present | None = None
    portworx_volume: Present | None = None
    rbd: Present | None = None


class Named(Wire):
    """A scheduling gate or resource claim."""

    name: str


class PlacedSpec(Wire):
    """The part of a pod's `spec` that shows whether it is bound, or can be."""

    node_name: str | None = None
    scheduling_gates: list[Named] | None = None


class PodClaim(Wire):
    """A reference to a claim; in a status, the claim that was made of a template."""

    name: str
    resource_claim_name: str | None = None


class PodSpec(Wire):
    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    host_network: bool | None = None
    host_users: bool | None = None
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
    resource_claims: list[PodClaim] | None = None
    preemption_policy: str | None = None
    scheduling_group: dict[str, Any] | None = None


class ContainerStatus(Wire):
    """The actual resources of a container (in-place resize)."""

    name: str
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class PodStatus(Wire):
    phase: str | None = None
    start_time: dt.datetime | None = None
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None
    resource_claim_statuses: list[PodClaim] | None = None


class Pod(Wire):
    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus | None = None


class ReadBackPod(Wire):
    """A pod as it is read back after a conflict, to find out whether our own Binding was the one that succeeded."""

    metadata: ObjectMeta
    spec: PlacedSpec
    kind: str = ""
