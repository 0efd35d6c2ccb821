"""
The answers as frozen values, without the functions that compute them, and their JSON form.

The commands, the process's endpoints and the page show these values and compute none of their own. A value has no
mappings: a JSON reader would have to guess their keys. The names in JSON are the fields' in camel case.
"""

import enum
import re
from typing import Any, Final, TypeVar

import attrs
import msgspec

from neuron_scheduler.model.wording import camel

T = TypeVar("T")
LEFT_OUT: Final = "Pod names are hidden. A token, and a namespace whose pods it may read, show them."
_CAPITAL: Final = re.compile(r"([A-Z])")


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
    REQUESTS = "requests"
    """Less cpu, memory or another resource."""
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
    PAIRS = "pairs"
    """The profile allows aligned pairs of devices."""
    MEMBERS = "members"
    """A group has fewer members."""
    NEW_NODE = "new_node"
    """A fresh node of some type joins; for a group it may be several."""


@attrs.frozen
class PodSummary:
    """
    The pod in question.

    Attributes:
        created: seconds since the epoch; 0 if it is not known, as for a pod from a file.
        asks: what it asks for of Neuron, such as `8 Neuron devices (4 + 4)`; empty if nothing.
        group: the name of the pods that start together with it; empty if it is in no group.
        owner: the controller that has made it, such as `ReplicaSet web`; empty if there is none.
    """

    namespace: str
    name: str
    scheduler_name: str = ""
    priority: int = 0
    created: float = 0.0
    asks: str = ""
    group: str = ""
    owner: str = ""


@attrs.frozen
class NodeGroup:
    """
    Nodes that refuse (or take) the pod for the same first reason with the same figures.

    Attributes:
        nodes: how many they are.
        names: of a few of them.
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
        evictable: the scheduler itself may evict it, because its priority is below that of the pod in question.
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
class SuggestedChange:
    """
    One change after which the pod fits, tried with the filters.

    Attributes:
        sentence: for people: what to do, and where the pod then goes.
        command: one that does it, with kubectl; empty if there is none.
        node_name: where the pod would go; empty for a node that does not exist yet.
        pods: that have to go (of DEPARTURE only).
        instance_type: of the node, or of the new one.
        detail: the count as `resource=count` or `members=count`, the taint as `key=value:effect`, or the selector as
            `key=value`.
        autoscalers: of NEW_NODE only: whether Karpenter and Cluster Autoscaler see from the pod's condition that they
            should add a node.
    """

    kind: ChangeKind
    sentence: str
    command: str = ""
    node_name: str = ""
    pods: tuple[LeavingPod, ...] = ()
    instance_type: str = ""
    detail: str = ""
    autoscalers: bool = False


@attrs.frozen
class Explanation:
    """
    Why a pod waits, or that it fits; or the same of one node.

    Attributes:
        message: the text of the Event and the condition (`FitError.text`), without preemption's part; for a pod that
            fits, where it would go.
        cause: as in `neuron_scheduler_pods_waiting`, or `scheduler_name`; empty if it fits.
        nodes: how many nodes the cluster has.
        groups: the nodes by first reason, the most promising first; about one node, what each filter says that refuses
            it.
        changes: what would let it in; empty if it fits or if nothing was found.
        notes: what was not tried or could not be read, and why: one sentence each.
        node_name: where it would go, or is.
        ids: devices or cores that it would get, or has.
        capacity_request: whether an autoscaler is asked for a machine for it, or why not: one sentence. Empty if that
            is not for the scheduler to do, or if it did not give the answer.
        decider: that another scheduler decides the pod, and the rest is what ours would do; or that nobody decides it,
            because no replica leads. To be read first.
    """

    pod: PodSummary
    verdict: Verdict
    message: str
    cause: str = ""
    nodes: int = 0
    groups: tuple[NodeGroup, ...] = ()
    changes: tuple[SuggestedChange, ...] = ()
    notes: tuple[str, ...] = ()
    node_name: str = ""
    ids: tuple[int, ...] = ()
    capacity_request: str = ""
    decider: str = ""


@attrs.frozen
class PlannedPod:
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
    """

    message: str
    cause: str
    replica: int
    part: str = ""


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
        placed: where their pods go, and those of a last one that is not complete, in the order of their decisions.
        total: replicas that fit without regard to `asked`.
        limit: what keeps the next one out; None if nothing was found up to a bound, so there may be more.
        never: not even one would fit if all other pods were gone.
        notes: what was not considered, and why: one sentence each.
    """

    name: str = ""
    asks: str = ""
    asked: int = 0
    fitting: int = 0
    pods_per_replica: int = 1
    placed: tuple[PlannedPod, ...] = ()
    total: int = 0
    limit: Limit | None = None
    never: bool = False
    notes: tuple[str, ...] = ()


class CoreState(enum.StrEnum):
    """What is known of one Neuron core, as a letter."""

    FREE = "f"
    """No pod holds it; if the machine is withheld, no pod gets it either."""
    HELD = "h"
    KEPT = "k"
    """Free, and nominated to a pending pod."""
    UNKNOWN = "u"
    """A pod with unreadable ids may hold it."""
    DOUBLE_BOOKED = "d"
    """Two pods claim it."""


@attrs.frozen
class Holder:
    """
    A pod on a machine, or one for which space is kept there.

    Attributes:
        namespace, name: empty where the reader may not see names.
        cores: the first and the last index of each run of the machine's cores that it holds, ascending; none for an
            unknown holder.
        kept: the pod is not there yet.
        unknown: what it holds cannot be read.
    """

    namespace: str
    name: str
    cores: tuple[tuple[int, int], ...] = ()
    kept: bool = False
    unknown: bool = False


@attrs.frozen
class MachinePicture:
    """
    One node with Neuron.

    Attributes:
        instance_type: without `ml.`; `unknown` if the node has no such label.
        shape: how its devices are linked: a value of the catalog's `Shape`, such as `torus`, `ring` or `line`.
        units: what pods may ask for: `device`, `core` or both. If only cores are served, the devices are unknown, and
            `devices` is the number of cores.
        cores: the state of each core, device by device: a string of the letters of `CoreState`.
        holders: the pods with Neuron, in the order of their cores; unknown holders last.
        used_devices: pods hold some or all of their cores.
        free_devices: as the metrics count them: what a pod of priority 0 that asks for devices only can get now.
        withheld: why the node takes no pods, in the words of the metrics (cordoned, tainted, ...); empty if it does.
        set_aside: its kubelet has rejected pods, so it is used last.
        free_blocks: sizes in devices of the free blocks that pods can get, the largest first; they add up to
            `free_devices`, and each is a legal count.
        zone, ultraserver: from its labels; empty if it has none.
        ultraserver_size: how many machines such an UltraServer has; 0 if that is not known.
    """

    node_name: str
    instance_type: str
    shape: str
    devices: int
    cores_per_device: int
    units: tuple[str, ...]
    cores: str
    holders: tuple[Holder, ...] = ()
    used_devices: int = 0
    free_devices: int = 0
    free_blocks: tuple[int, ...] = ()
    withheld: str = ""
    set_aside: bool = False
    zone: str = ""
    ultraserver: str = ""
    ultraserver_size: int = 0


@attrs.frozen
class TypeSummary:
    """
    The machines of one instance type: devices that are free, used and withheld add up to all, as in the metrics.

    Attributes:
        nodes: also those that serve cores only, which add no devices.
        largest_block: devices in the largest free block of one node.
    """

    instance_type: str
    nodes: int = 0
    devices: int = 0
    free: int = 0
    used: int = 0
    withheld: int = 0
    largest_block: int = 0


@attrs.frozen
class Fleet:
    """
    All machines and their sums by instance type.

    Attributes:
        machines: all, or some of each kind. The worst first: withheld, then with unknown or double-booked cores, then
            fragmented ones, by how many free devices are outside of the largest block. Equal ones by age, the oldest
            first.
        types: by name.
        notes: what the reader has to know about the picture, such as names that are left out: one sentence each.
    """

    machines: tuple[MachinePicture, ...]
    types: tuple[TypeSummary, ...]
    notes: tuple[str, ...] = ()

    @property
    def leaves_out(self) -> bool:
        """Return whether the fleet has more machines than are pictured."""
        return len(self.machines) < sum(of.nodes for of in self.types)


@attrs.frozen
class WaitingEntry:
    """
    A pod that has no node.

    Attributes:
        pod: its namespace and name are empty where the reader may not see names.
        cause: as in `neuron_scheduler_pods_waiting`, or `scheduler_name`.
        message: the text of the Event and the condition; empty if it has not been tried yet.
    """

    pod: PodSummary
    cause: str = ""
    message: str = ""


@attrs.frozen
class Waiting:
    """
    The pods that wait.

    Attributes:
        pods: the longest wait first, at most as many as the endpoint says.
        total: how many wait in all.
        notes: what the reader has to know, such as names that are left out: one sentence each.
    """

    pods: tuple[WaitingEntry, ...]
    total: int = 0
    notes: tuple[str, ...] = ()


@attrs.frozen
class RecentDecision:
    """
    What was decided about a pod.

    Attributes:
        at: seconds since the epoch.
        pod: its namespace and name are empty where the reader may not see names.
        node_name: its node; empty if it was refused.
        ids: devices or cores that it gets.
        cause: of a refusal, as in `neuron_scheduler_pods_waiting`.
        message: the text of the Event.
    """

    at: float
    pod: PodSummary
    node_name: str = ""
    ids: tuple[int, ...] = ()
    cause: str = ""
    message: str = ""


@attrs.frozen
class RecentDecisions:
    """What this process has decided lately, the newest first, bounded."""

    decisions: tuple[RecentDecision, ...]
    notes: tuple[str, ...] = ()


def to_json(answer: attrs.AttrsInstance) -> Any:
    return _rename(msgspec.to_builtins(answer), camel)


def from_json(value: Any, answer: type[T]) -> T:
    """Return the answer in JSON values without the fields of a newer version; msgspec.ValidationError if it is none."""
    snake = _rename(value, lambda key: _CAPITAL.sub(lambda match: f"_{match[1].lower()}", key))
    return msgspec.convert(snake, answer)


def _rename(value: Any, name: Any) -> Any:
    match value:
        case dict():
            return {name(key): _rename(item, name) for key, item in value.items()}
        case list() | tuple():
            return [_rename(item, name) for item in value]
        case _:
            return value
