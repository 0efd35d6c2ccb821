"""
The answer to "why does this pod wait?", as values.

The commands, the endpoint `/v1/why` and the page show these values and compute none of their own. Their JSON form is
that of `json_form`: the same names in camel case. Refuses mappings, whose keys a JSON reader would have to guess.
"""

import enum

import attrs


class Verdict(enum.StrEnum):
    """What is true of the pod now."""

    FITS = "fits"
    """The decision would give it a node now."""
    WAITS = "waits"
    """No node takes it."""
    GATED = "gated"
    """It has scheduling gates; what follows is what would happen without them."""
    BOUND = "bound"
    """It has a node; what follows is how that node looks."""


class ChangeKind(enum.StrEnum):
    """What would be changed; the order is that in which the changes are shown."""

    COUNT = "count"
    """Another number of devices or cores."""
    DEPARTURE = "departure"
    """Pods of one node end or are evicted."""
    UNCORDON = "uncordon"
    """The cordon of a node is lifted."""
    TOLERATION = "toleration"
    """The pod tolerates a taint."""
    SELECTOR = "selector"
    """The pod drops a node selector or a required node affinity term, or only its instance type."""
    INSTANCE_TYPE = "instance_type"
    """The pod selects another instance type that the cluster has."""
    NEW_NODE = "new_node"
    """A fresh node of some type joins."""


@attrs.frozen
class PodSummary:
    """
    The pod in question.

    Attributes:
        created: seconds since the epoch; 0 if it is not known, as for a pod from a file.
        asks: what it asks for of Neuron, such as `8 Neuron devices (4 + 4)`; empty if nothing.
        count: devices or cores, by `resource`; 0 without Neuron.
        node_name: its node, if it has one.
    """

    namespace: str
    name: str
    scheduler_name: str = ""
    priority: int = 0
    created: float = 0.0
    asks: str = ""
    resource: str = ""
    count: int = 0
    node_name: str = ""


@attrs.frozen
class FilterCount:
    """
    How many nodes one filter refused for one reason: an item of "0/5 nodes are available: 3 Insufficient cpu, ...".

    Attributes:
        unresolvable: evicting pods from these nodes would not help.
    """

    plugin: str
    reason: str
    nodes: int
    unresolvable: bool = False


@attrs.frozen
class NodeGroup:
    """
    Nodes that refuse (or take) the pod for the same first reason with the same figures.

    Attributes:
        nodes: how many they are.
        names: of the oldest of them, at most `groups.MOST_NAMED`.
        plugin: the filter that refuses first; empty for nodes that take the pod.
        reason: its words.
        arithmetic: one sentence with the figures behind the reason, such as "needs 8 devices; 12 are free in blocks of
            4, 4, 2 and 2; the largest is 4".
        cause: what these nodes lack, as in `neuron_scheduler_pods_waiting`.
        kept_for: keys of pods for which space is kept here, if that is why.
    """

    nodes: int
    names: tuple[str, ...]
    instance_type: str = ""
    plugin: str = ""
    reason: str = ""
    arithmetic: str = ""
    cause: str = ""
    kept_for: tuple[str, ...] = ()


@attrs.frozen
class LeavingPod:
    """
    A pod that would have to go.

    Attributes:
        started: seconds since the epoch; 0 if it has not started.
        budgets: names of the PodDisruptionBudgets that count it.
        violates: its eviction would go beyond what one of them allows now.
        evictable: its priority is below that of the pod in question, so the scheduler itself may evict it.
    """

    namespace: str
    name: str
    priority: int = 0
    started: float = 0.0
    asks: str = ""
    budgets: tuple[str, ...] = ()
    violates: bool = False
    evictable: bool = False


@attrs.frozen
class Change:
    """
    One change after which the pod fits: tried on a copy of the cluster, and no smaller one of its kind would do.

    Attributes:
        sentence: for people: what to do, and where the pod then goes.
        command: one that does it, with kubectl; empty if there is none.
        node_name: where the pod would go; empty for a node that does not exist yet.
        counts: legal counts, best first (of COUNT only).
        pods: that have to go (of DEPARTURE only).
        instance_type: of the node, or of the new one.
        detail: the taint as `key=value:effect`, or the selector as `key=value`.
        autoscalers: of NEW_NODE only: whether Karpenter and Cluster Autoscaler see from the pod's condition that they
            should add a node.
    """

    kind: ChangeKind
    sentence: str
    command: str = ""
    node_name: str = ""
    counts: tuple[int, ...] = ()
    pods: tuple[LeavingPod, ...] = ()
    instance_type: str = ""
    detail: str = ""
    autoscalers: bool = False


@attrs.frozen
class Explanation:
    """
    Why a pod waits, or that it fits.

    Attributes:
        message: the text of the Event and the condition (`FitError.text`), without preemption's part; for a pod that
            fits, where it would go.
        cause: as in `neuron_scheduler_pods_waiting`; empty if it fits.
        nodes: how many nodes the cluster has.
        filters: the counts behind the message, in the order of the filters.
        groups: the nodes by first reason, the most promising first.
        changes: what would let it in; empty if it fits or if nothing was found.
        notes: what was not tried or could not be read, and why: one sentence each.
        node_name: where it would go, or is.
        ids: devices or cores that it would get, or has.
        capacity_request: whether an autoscaler is asked for a machine for it, or why not: one sentence. Empty if that
            is not for the scheduler to do, or if it did not give the answer.
    """

    pod: PodSummary
    verdict: Verdict
    message: str
    cause: str = ""
    nodes: int = 0
    filters: tuple[FilterCount, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    node_name: str = ""
    ids: tuple[int, ...] = ()
    capacity_request: str = ""


@attrs.frozen
class FilterVerdict:
    """
    What one plugin says of one node.

    Attributes:
        reasons: why it refuses the node; none if it passes.
        arithmetic, cause: as in `NodeGroup`.
    """

    plugin: str
    passes: bool
    reasons: tuple[str, ...] = ()
    arithmetic: str = ""
    cause: str = ""


@attrs.frozen
class NodeHolder:
    """
    A pod that holds Neuron on the node, or one for which space is kept there.

    Attributes:
        unit: of the ids: `device` or `core`.
        ids: ascending; none if they are unknown.
        kept: the pod is not there yet.
        unknown: what it holds cannot be read.
    """

    namespace: str
    name: str
    asks: str = ""
    priority: int = 0
    unit: str = ""
    ids: tuple[int, ...] = ()
    kept: bool = False
    unknown: bool = False


@attrs.frozen
class NodeExplanation:
    """
    What every filter says of one node, also of one that an earlier filter refuses already.

    Attributes:
        message: whether the node takes the pod, and all the reasons why not.
        filters: in kube-scheduler's order; none if there is no such node, or if the pod itself is refused.
        free: what is free of the node's devices and cores, in words; empty without Neuron.
        holders: in the order of their ids.
        ids: those that the pod would get here, or has.
        notes: one sentence each.
    """

    pod: PodSummary
    node_name: str
    verdict: Verdict
    message: str
    instance_type: str = ""
    filters: tuple[FilterVerdict, ...] = ()
    free: str = ""
    holders: tuple[NodeHolder, ...] = ()
    ids: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
