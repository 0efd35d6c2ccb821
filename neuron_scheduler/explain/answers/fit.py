"""
The answer to "how many more pods fit?", as values: where they go, what limits the rest, what more nodes would give.

A *replica* is what is counted: one pod, or a group of pods that are of use only together, such as a leader with its
workers. The command, the endpoint `/v1/fit` and the page show these values and compute none of their own.
"""

import attrs


@attrs.frozen
class PlacedPod:
    """
    Where one pod would go; the pods before it are there already.

    Attributes:
        replica: its number, from 1; above `Fit.fitting`, its replica is not complete.
        part: which pod of the replica, such as `worker`; empty if there is only one kind.
        ids: devices or cores that it would get.
        unit: of `ids`: `device` or `core`; empty without Neuron.
    """

    replica: int
    node_name: str
    instance_type: str = ""
    part: str = ""
    ids: tuple[int, ...] = ()
    unit: str = ""


@attrs.frozen
class Limit:
    """
    Why the first pod that does not fit does not fit, in the words of its Event.

    Attributes:
        cause: as in `neuron_scheduler_pods_waiting`.
        replica, part: which pod that is.
        autoscalers: whether Karpenter and Cluster Autoscaler see from the pod's condition that they should add a node.
    """

    message: str
    cause: str
    replica: int
    part: str = ""
    autoscalers: bool = False


@attrs.frozen
class TypeCount:
    """How many pods would go to nodes of one instance type; empty for nodes without that label."""

    instance_type: str
    pods: int
    nodes: int


@attrs.frozen
class Purchase:
    """
    What new nodes of one instance type would give, tried on a copy of the cluster with these nodes.

    Attributes:
        total: replicas that would fit, at most `Fit.most`.
        gained: more than without these nodes.
        enough: all replicas that were asked for would fit.
        smallest: with one node of the type fewer, not all of them would.
        like: the existing node that the new ones are shaped like; empty for a type that the cluster lacks.
        zone: of the new nodes; empty if it is not known.
        devices: Neuron devices of the new nodes together.
        limit: what would limit the rest then; None if nothing up to the bound.
        problem: why nothing was tried, such as an unknown type; empty if it was.
    """

    instance_type: str
    nodes: int
    total: int = 0
    gained: int = 0
    enough: bool = False
    smallest: bool = False
    like: str = ""
    zone: str = ""
    devices: int = 0
    limit: Limit | None = None
    problem: str = ""


@attrs.frozen
class Fit:
    """
    How many replicas fit.

    Attributes:
        name: of the workload, such as `Job train`; empty for a pod that was described by its size.
        asks: what one replica asks for of Neuron, such as `8 Neuron devices`; empty if nothing.
        asked: replicas that were asked for; 0 if the question was how many there can be.
        fitting: of them, those that fit now; all that fit if `asked` is 0.
        pods_per_replica: above 1 for a group.
        pods_fitting: pods of those replicas, and of the last one that is not complete, in order.
        placed: where these pods go, in the order in which they are decided.
        total: replicas that fit without regard to `asked`, at most `most`.
        most: the bound; if `total` reaches it, there may be more.
        limit: what keeps the next one out; None if nothing up to the bound.
        types: where the pods of `placed` go, by instance type.
        purchases: those that were asked about; if not all replicas fit, the smallest one of each type that lets all in.
        notes: what was not considered, and why: one sentence each.
    """

    name: str = ""
    asks: str = ""
    asked: int = 0
    fitting: int = 0
    pods_per_replica: int = 1
    pods_fitting: int = 0
    placed: tuple[PlacedPod, ...] = ()
    total: int = 0
    most: int = 0
    limit: Limit | None = None
    types: tuple[TypeCount, ...] = ()
    purchases: tuple[Purchase, ...] = ()
    notes: tuple[str, ...] = ()


@attrs.frozen
class Fits:
    """
    The answers for several workloads, in order: the pods of each are there for the next one, as far as they fit.

    Attributes:
        notes: what could not be read of the cluster: one sentence each.
    """

    workloads: tuple[Fit, ...]
    notes: tuple[str, ...] = ()
