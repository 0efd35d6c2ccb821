"""
Pods: what an event means to the cluster, to the queue, and to the reader of the log.

Upstream: `pkg/scheduler/eventhandlers.go`. A pod with a node belongs to the cluster, no matter which scheduler
bound it; a pod without a node belongs to the queue if its scheduler name is ours. Handlers are plain functions that
never await, so the cluster is consistent between any two of them. What is unknown about a pod's devices is logged once
per pod, and counted.
"""

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs

log = logs.logger(__name__)

UNKNOWN = "Pod uses Neuron devices, but their ids are unknown"
EFFECT = "until it ends, its node gets no pod with several devices or cores"
ADVICE = "set schedulerName on every pod that asks for Neuron, and spec.nodeName on none, so that its devices are known"


@attrs.define(eq=False, kw_only=True)
class PodHandler(ObjectHandler[Pod]):
    """
    Keeps the pods: those with a node in the cluster, waiting ones in the queue.

    Attributes:
        scheduler_names: pods with one of these are ours to schedule.
        clock: seconds that never jump, the queue's time.
        gone: called with the uid of each pod that is gone.
        came: called with the name of a node on which a pod is, or takes what, this process did not decide; at the end
            of a list once with each node of its pods, and each that `defers` was asked about.
        left: called with a pod that is gone from its node without having started or having been deleted.
        double_booked: called with a pod and another that claims the same cores.
        unknown: called with a bound pod whose devices are unknown, the reason, and advice for its owner.
        noticed: called with the uid of each pod that is bound, changes while it is assumed, or is gone, and the name of
            its node.
        pending_elsewhere: called with the new state of a pod without a node that another scheduler has to place.
    """

    MALFORMED: ClassVar[str] = "Skipping malformed pod"

    cluster: Cluster
    queue: SchedulingQueue
    scheduler_names: Container[str]
    clock: Callable[[], float]
    gone: Callable[[str], None]
    came: Callable[[str], None]
    left: Callable[[PodInfo], None]
    double_booked: Callable[[Pod, Pod], None]
    unknown: Callable[[Pod, str, str], None]
    noticed: Callable[[str, str], None]
    pending_elsewhere: Callable[[Pod], None]
    resource: str = "pods"
    _doubted: logs.Once = attrs.field(factory=logs.Once, init=False)
    _replacing: bool = attrs.field(default=False, init=False)
    _rivals: list[str] = attrs.field(factory=list, init=False)  # uids; not reported yet
    _came_to: dict[str, None] = attrs.field(factory=dict, init=False)  # names for which `came` is not called yet

    def added(self, new: Pod) -> None:
        """Keep or queue a new pod."""
        if new.group is not None:
            self._in_its_group(new)
        if new.node_name:
            self._bound(new)
        elif self._is_ours(new):
            self.queue.add(new, self.clock())
        elif new.scheduler_name not in self.scheduler_names:
            self.pending_elsewhere(new)

    def updated(self, old: Pod, new: Pod) -> None:
        """Replace a pod; the queue decides whether the change is worth another try."""
        if old.group is not None or new.group is not None:
            self._in_its_group(old, new)
        if new.node_name:
            self._bound(new)
        elif self.cluster.is_assumed(new.uid):
            self._assumed_changed(new)
        elif self._is_ours(new):
            self.queue.update(new, self.clock())
            self._resize_nomination(new)
        elif self._is_ours(old):
            self.queue.remove(new.uid)
            if self.cluster.clear_nomination(new.uid) is not None:
                self._note(ClusterEvent.ASSIGNED_POD_GONE, new)
        elif new.scheduler_name not in self.scheduler_names:
            self.pending_elsewhere(new)

    def deleted(self, old: Pod) -> None:
        """Drop a pod that is gone or has ended: only now are its devices and cores free."""
        self.queue.remove(old.uid)
        if old.group is not None:
            self.cluster.groups.remove(old.uid)
            self.queue.group_changed(old.group.key, self.clock())
        self._doubted.forget(old.uid)
        pod_info, nominated_node = self.cluster.pod_info(old.uid), self.cluster.clear_nomination(old.uid)
        name = self.cluster.remove_pod(old.uid)
        if name is not None or nominated_node is not None:
            self._note(ClusterEvent.ASSIGNED_POD_GONE, old)
        self.gone(old.uid)
        self.noticed(old.uid, name or "")
        if pod_info is not None and pod_info.pod.started is None and not (old.terminating or pod_info.unreadable):
            self.left(pod_info)

    def _in_its_group(self, *states: Pod) -> None:
        """Count a pod, in its last state, among the members of its group; it may have been in another one before."""
        self.cluster.groups.put(states[-1])
        for key in dict.fromkeys(state.group.key for state in states if state.group is not None):
            self.queue.group_changed(key, self.clock())

    def take_unreadable(self, malformed: Malformed) -> None:
        """Count what the pod uses on its node as unknown, unless it could be read there before."""
        if malformed.node_name and malformed.uid:
            self.queue.remove(malformed.uid)
            freed = dict(self._places_given_up(malformed))
            if self.cluster.is_assumed(malformed.uid) and freed:
                self.cluster.remove_pod(malformed.uid)  # another scheduler has bound it
            namespace, _, name = malformed.key.partition("/")
            pod = Pod(uid=malformed.uid, namespace=namespace, name=name, node_name=malformed.node_name)
            self.cluster.put_unreadable_pod(pod)
            for node_name, known in freed.items():
                self._note(ClusterEvent.ASSIGNED_POD_GONE, known, node_name=node_name)
            self.noticed(malformed.uid, malformed.node_name)
            self.cluster.put_unreadable_pod(pod)  # once more, for a pod whose Binding waited, and has just been dropped
            self._came(malformed.node_name)

    def logged(self, malformed: Malformed) -> None:
        """Report a pod whose devices are unknown to its owner."""
        pod_info = self.cluster.pod_info(malformed.uid)
        if pod_info is not None and pod_info.unreadable:
            self.unknown(pod_info.pod, pod_info.problem, ADVICE)

    def no_longer_malformed(self, malformed: Malformed) -> None:
        """Drop what stood in for an unreadable pod that is gone; one that can be read has been replaced already."""
        super().no_longer_malformed(malformed)
        pod_info = self.cluster.pod_info(malformed.uid)
        if pod_info is not None and pod_info.unreadable:
            self.cluster.remove_pod(malformed.uid)
            self._note(ClusterEvent.ASSIGNED_POD_GONE, pod_info.pod)
            self.noticed(malformed.uid, pod_info.pod.node_name)

    def identity(self, malformed: Malformed) -> dict[str, Any]:
        """Return the keys of the log line that name the pod."""
        return {"pod": malformed.key, "node": malformed.node_name}

    def report_doubts(self) -> None:
        """Report all pods whose devices are unknown or claimed twice, when this replica becomes the leader."""
        for node_info in self.cluster.view.rows():
            if not (node_info.neuron_usage.double_booked or node_info.neuron_usage.unknown_holders):
                continue
            for uid, pod_info in node_info.pod_infos.items():
                if pod_info.cores is None:
                    self.unknown(pod_info.pod, pod_info.problem, ADVICE)
                for rival in node_info.conflicts(uid)[:1] if node_info.neuron_usage.double_booked else ():
                    self.double_booked(pod_info.pod, rival)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """
        Say that a pod came to a node, and report cores that are claimed twice, only after the block.

        A list hands over new pods before it removes those that are gone, whose space the new ones may have: within the
        block both count. A list that is broken off is followed by another, and only that one's end says who is gone.
        """
        self._replacing = True
        yield
        self._replacing = False
        names = list(self._came_to)
        self._came_to.clear()
        for name in names:
            self.came(name)
        known = [self.cluster.pod_info(uid) for uid in self._rivals]
        self._rivals.clear()
        for pod_info in filter(None, known):
            self._report_conflict(pod_info.pod)

    def listing(self) -> bool:
        """Return whether the pods are being replaced by those of a list."""
        return self._replacing

    def defers(self, node_name: str) -> bool:
        """
        Return whether a node must not be looked at now, because its pods are being replaced by those of a list.

        `came` is then called with its name at the end of the list.
        """
        if self._replacing:
            self._came_to[node_name] = None
        return self._replacing

    def _came(self, node_name: str) -> None:
        """Call `came`, now or at the end of the list that is being handed over."""
        if not self.defers(node_name):
            self.came(node_name)

    def _resize_nomination(self, pod: Pod) -> None:
        """Keep as much space for a waiting pod as it asks for now; upstream: `UpdateNominatedPod`."""
        node_name, nomination = self.cluster.nomination(pod.uid) or ("", None)
        if nomination is not None and nomination.pod.requests != pod.requests:
            self.cluster.nominate(node_name, attrs.evolve(nomination, pod=pod))
            self._note(ClusterEvent.ASSIGNED_POD_GONE, pod, node_name=node_name)
            self._came(node_name)

    def _places_given_up(self, malformed: Malformed) -> Iterator[tuple[str, Pod]]:
        """Yield the nodes on which an unreadable pod needs the space no more that is nominated or assumed for it."""
        nominated, pod_info = self.cluster.nomination(malformed.uid), self.cluster.pod_info(malformed.uid)
        if nominated is not None:
            yield nominated[0], nominated[1].pod
        if pod_info is not None and pod_info.pod.node_name != malformed.node_name:
            yield pod_info.pod.node_name, pod_info.pod

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name in self.scheduler_names and not pod.terminating

    def _assumed_changed(self, pod: Pod) -> None:
        """Update an assumed pod in the queue; one that is being deleted is not tried again if its Binding fails."""
        if pod.terminating:
            self.queue.remove(pod.uid)
        elif pod.uid in self.queue:
            self.queue.update(pod, self.clock())
        self.noticed(pod.uid, "")

    def _bound(self, pod: Pod) -> None:
        self.queue.remove(pod.uid)
        before, nominated = self.cluster.pod_info(pod.uid), self.cluster.nomination(pod.uid)
        pod_info = self.cluster.put_pod(pod)
        if nominated is not None:
            self._note(ClusterEvent.ASSIGNED_POD_GONE, pod, node_name=nominated[0])
        if before is None or _has_news(before, pod_info):
            self._report_doubt(pod_info)
            self._came(pod.node_name)
        elif _takes_more(before, pod_info):
            self._came(pod.node_name)
        if before is None:
            self._note(ClusterEvent.ASSIGNED_POD_ADDED, pod)
        else:
            self._note_changes(before, pod_info)
        self.noticed(pod.uid, pod.node_name)

    def _note_changes(self, before: PodInfo, after: PodInfo) -> None:
        old, new = before.pod, after.pod
        if old.node_name != new.node_name:
            self._note(ClusterEvent.ASSIGNED_POD_GONE, old)
            self._note(ClusterEvent.ASSIGNED_POD_ADDED, new)
            return
        if (old.labels, old.terminating) != (new.labels, new.terminating):
            self._note(ClusterEvent.ASSIGNED_POD_LABELS, old, new)
        if _frees_something(before, after):
            self._note(ClusterEvent.ASSIGNED_POD_GONE, new)

    def _note(self, event: ClusterEvent, *pods: Pod, node_name: str = "") -> None:
        if self.queue.listening:
            self.queue.note(event, *pods, on=self.cluster.node(node_name or pods[0].node_name))

    def _report_doubt(self, pod_info: PodInfo) -> None:
        """Log and report what is in doubt about the cores that a bound pod uses."""
        pod = pod_info.pod
        if pod_info.cores == 0:
            return
        if pod_info.problem and self._doubted(pod.uid, pod_info.cores is None):
            if pod_info.cores is None:
                log.warning(UNKNOWN, pod=pod.key, node=pod.node_name, err=pod_info.problem, effect=EFFECT, hint=ADVICE)
                self.unknown(pod, pod_info.problem, ADVICE)
            else:
                log.warning(
                    "Pod's Neuron allocation is in doubt", pod=pod.key, node=pod.node_name, err=pod_info.problem
                )
        self._report_conflict(pod)

    def _report_conflict(self, pod: Pod) -> None:
        rivals = self.cluster.conflicts(pod.uid)
        if rivals and self._replacing:
            self._rivals.append(pod.uid)
        elif rivals:  # only the first is reported: all pods of a node may claim the same cores, which makes many pairs
            more = f" and {len(rivals) - 1} more" if len(rivals) > 1 else ""
            log.error("Pods claim the same Neuron cores", pod=pod.key, other=rivals[0].key + more, node=pod.node_name)
            self.double_booked(pod, rivals[0])
            self.double_booked(rivals[0], pod)


def _has_news(before: PodInfo, after: PodInfo) -> bool:
    """Return whether there may be something new to report about a pod."""
    return (before.pod.node_name, before.cores, before.problem) != (after.pod.node_name, after.cores, after.problem)


def _frees_something(before: PodInfo, after: PodInfo) -> bool:
    """Return whether other pods may fit now: the pod was scaled down, or its cores are known at last."""
    return (before.cores is None and after.cores is not None) or _takes_more(after, before)


def _takes_more(before: PodInfo, after: PodInfo) -> bool:
    """Return whether a pod asks for more of something than before; a resize in place may have raised its requests."""
    then, now = before.pod.requests, after.pod.requests
    return now is not then and any(then.get(name, 0) < amount for name, amount in now.items())
