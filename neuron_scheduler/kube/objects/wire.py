"""
What API objects of every kind have in common, as it is spelled on the wire; other fields are skipped while decoding.

`gc=False` keeps the collector out: none of these can be part of a cycle. Optional containers are `X | None`, because an
explicit `null` would otherwise cost the whole object. The fields of one kind are in its module, those of pods in
`pod_wire`.
"""

import datetime as dt
from typing import Generic, Literal, TypeVar

import msgspec

W = TypeVar("W")

Quantities = dict[str, str | int]


class Wire(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """The base of all structs here: msgspec takes options by inheritance."""


class ListMeta(Wire):
    """`metadata` of a list or of a bookmark."""

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
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Change(msgspec.Struct, Generic[W]):
    """One line of a watch with an object."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: W


class StatusDetails(Wire):
    """`details` of a Status."""

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
    """The part of `metadata` that says which object it is."""

    name: str = ""
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""


class Placed(Wire):
    """The part of a pod's `spec` that says where it is."""

    node_name: str | None = None


class Identified(Wire):
    """What is read of an object that cannot be read as a whole."""

    metadata: Identity
    spec: msgspec.Raw = msgspec.Raw(b"{}")


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


class EbsDisk(Wire):
    """`awsElasticBlockStore`."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class InTree(Wire):
    """The source of a pod's or persistent volume whose in-tree plugin was replaced by AWS's CSI driver."""

    aws_elastic_block_store: EbsDisk | None = None


class Condition(Wire):
    """A condition of a pod or node."""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
