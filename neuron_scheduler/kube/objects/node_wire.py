"""The fields of nodes that we read, as they are spelled on the wire; `nodes` reads them."""

from neuron_scheduler.kube.objects.wire import Condition, ObjectMeta, Quantities, Wire


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
    declared_features: list[str] | None = None


class Node(Wire):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
