r"""
The road of a change: from a line of a watch to the Event that says where a pod is.

    line of a watch                     `kube/watch/informer`, `kube/objects`: read
      -> on_added, on_updated, ...      `kube/watch/object_store`: compared with the last state
      -> fold                           `controllers/watch_handler`, `cluster/fold`: the cluster takes it in
      -> changes                        `controllers/observers`: each observer is told, the queue first
    pop                                 `controllers/scheduling_loop`, `scheduling/queue`: the next pod
      -> attempt                        `controllers/pod_attempt`; of a group: `controllers/group_attempt`
      -> decision                       `scheduling/cycle`: filter, prefer
           refused -> preempt, put back `controllers/preemption_executor`, `scheduling/queue`; Event, condition
      -> assumption                     `scheduling/cycle/trial`: the pod is on its node for every later decision
      -> commitment                     `controllers/commitment`
      -> Binding                        `controllers/binding_cycle`: volumes, fence, request, outcome
      -> Event                          `controllers/pod_reporter`
    and the Binding comes back as a line of the watch of pods.

A change says what has happened to the cluster, after it has happened. It never says what to do: each observer knows
what a change means to its own work, and ignores the others. Upstream: `pkg/scheduler/eventhandlers.go`.

Who is told of what, by the modules of the observers:

    GroupChanged        queue_observer
    PodPending          queue_observer, foreign_nominations, machines
    AssumedPodChanged   queue_observer, allocate_fence
    PodBound            queue_observer, allocate_fence, foreign_nominations, machines
    PodGone             queue_observer, allocate_fence, preemption_executor, rejections, volume_binder, pod_reporter,
                        watch_log, foreign_nominations, machines
    SpaceChanged        allocate_fence, preemption_executor, foreign_nominations
    PodDoubted          watch_log
    NodeChanged         queue_observer, preemption_executor, watch_log, machines
    NodeGone            queue_observer, allocate_fence, preemption_executor, rejections, volume_binder, watch_log
    NamespaceChanged    queue_observer
    StorageChanged      queue_observer, volume_binder
    DevicesChanged      queue_observer, claim_binder
"""

from collections.abc import Sequence
from typing import ClassVar, Protocol, TypeAlias

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import GroupKey
from neuron_scheduler.model.volumes import Storage


@attrs.frozen(eq=False)
class GroupChanged:
    """A member of a group has come, changed or gone, or its PodGroup has."""

    key: GroupKey


@attrs.frozen(eq=False)
class PodPending:
    """
    A pod without a node has come or changed.

    Attributes:
        freed: the node where space was kept for it that it does not need any more, or not all of it; empty for none.
    """

    pod: Pod
    freed: str = ""


@attrs.frozen(eq=False)
class AssumedPodChanged:
    """A pod whose node this process has decided has changed before its Binding was seen."""

    pod: Pod


@attrs.frozen(eq=False)
class PodBound:
    """
    A pod has come to a node, or has changed there.

    Attributes:
        before: what was known of it, which may be our assumption on another node.
        after: its state now; `unreadable` if only its node could be read.
        freed: as in `PodPending`.
    """

    before: PodInfo | None
    after: PodInfo
    freed: str


@attrs.frozen(eq=False)
class PodGone:
    """
    A pod is gone, or has ended: its devices are free.

    Attributes:
        pod: as the watch showed it last.
        held: what it held on its node; None if it had none.
        freed: the node that has space now, its own or its nominated one; empty for none.
    """

    pod: Pod
    held: PodInfo | None
    freed: str


@attrs.frozen(eq=False)
class SpaceChanged:
    """
    A node may have room for fewer pods, or for others, than when space there was promised to one.
    It follows the change of the node or of its pod. While the pods are listed it is put off, like `PodDoubted`.
    """

    node_name: str


@attrs.frozen(eq=False)
class PodDoubted:
    """What a pod holds on its node is unknown or in doubt, or another pod claims it too."""

    uid: str


@attrs.frozen(eq=False)
class NodeChanged:
    """
    A node has come, or has changed.

    Attributes:
        before: None if it has come.
        lost: the pods whose nominations ended with the machine that the node was.
    """

    before: Node | None
    after: NodeInfo
    lost: tuple[Pod, ...]


@attrs.frozen(eq=False)
class NodeGone:
    """A node is gone; its pods follow. `lost` are the pods that were nominated to it."""

    node_name: str
    lost: tuple[Pod, ...]


@attrs.frozen(eq=False)
class NamespaceChanged:
    """The labels of a namespace are other ones, so affinity terms may select other pods."""


@attrs.frozen(eq=False)
class StorageChanged:
    """
    A storage object has come (`before` is None), changed, or gone (`after` is None).

    Attributes:
        nodes: names of those on which other volumes, or fewer or more of them, count as attached now.
    """

    before: Storage | None
    after: Storage | None
    nodes: Sequence[str] = ()


@attrs.frozen(eq=False)
class DevicesChanged:
    """Claims have been given devices of some nodes, or have given them back; `claim` is the key of the one."""

    nodes: frozenset[str]
    claim: str


Change: TypeAlias = (
    GroupChanged
    | PodPending
    | AssumedPodChanged
    | PodBound
    | PodGone
    | SpaceChanged
    | PodDoubted
    | NodeChanged
    | NodeGone
    | NamespaceChanged
    | StorageChanged
    | DevicesChanged
)
Kinds: TypeAlias = tuple[type[Change], ...]


class Observer(Protocol):
    """
    A part to which some changes matter.

    Attributes:
        OBSERVES: the kinds of changes that it is told; of these, too, it may ignore some.
    """

    OBSERVES: ClassVar[Kinds]

    def observe(self, change: Change, /) -> None:
        """React to a change; called synchronously, after the cluster has taken it in. It must not await."""
