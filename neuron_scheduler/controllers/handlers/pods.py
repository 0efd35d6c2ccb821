"""
What a watch event means: to the cluster, to the queue, and to whoever reads the log.

Upstream: `pkg/scheduler/eventhandlers.go`. A pod with a node belongs to the cluster, whoever bound it; a pod
without one belongs to the queue if its scheduler name is ours. Handlers are plain functions that never await, so
the cluster is consistent between any two of them. Reports what cannot be trusted once per object, and counts it.
"""

from collections.abc import Callable, Container, Sequence

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.catalog import doubts
from neuron_scheduler.scheduling.queue.cluster_events import ClusterEvent, node_events
from neuron_scheduler.scheduling.queue.hints import Change
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

log = logs.logger(__name__)

UNKNOWN = "Pod uses Neuron devices, but their ids are unknown"
EFFECT = "until it ends, its node gets no pod with several devices or cores (unless unknownAllocations is count-only)"
ADVICE = "set schedulerName on every pod that asks for Neuron, and spec.nodeName on none, so that its devices are known"


def _unheard(_uid: str, _node_name: str) -> None:
    """Stand in where nothing waits for pods."""


def _nobody_asks(_name: str) -> None:
    """Stand in where nothing waits for nodes."""


@attrs.define(eq=False, kw_only=True)
class PodHandler:
    """
    Takes pod events.

    Attributes:
        scheduler_names: pods of these are ours to place.
        clock: seconds that never jump, the queue's time.
        wake: called when the scheduling loop may have something to do.
        gone: told the uid of every pod that is gone.
        came: told the name of a node to which somebody else has bound a pod.
        left: told of a pod that left its node's books before it had started, without having been asked to.
        started: told of a pod that its kubelet has admitted.
        noticed: told the uid of every pod that is bound, changes while it is assumed, or is gone, and its node's name.
        contested: told of a pod and another that claims the same cores.
        unknown: told of a bound pod whose devices are unknown, why they are, and what its owner should do.
    """

    cluster: Cluster
    queue: SchedulingQueue
    metrics: Metrics
    scheduler_names: Container[str]
    clock: Callable[[], float]
    wake: Callable[[], None]
    gone: Callable[[str], None]
    came: Callable[[str], None]
    left: Callable[[PodInfo], None]
    started: Callable[[PodInfo], None]
    double_booked: Callable[[Pod, Pod], None]
    unknown: Callable[[Pod, str, str], None]
    noticed: Callable[[str, str], None] = _unheard
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    def added(self, pod: Pod) -> None:
        """Take a pod that was not there before."""
        if pod.node_name:
            self._bound(pod)
        elif self._is_ours(pod):
            self.queue.add(pod, self.clock())
            self.wake()

    def updated(self, old: Pod, new: Pod) -> None:
        """Take a pod's new state."""
        if new.node_name:
            self._bound(new)
        elif self.cluster.is_assumed(new.uid):
            self._assumed_changed(new)
        elif self._is_ours(new):
            self.queue.update(new, self.clock())
            self.wake()
        elif self._is_ours(old):
            self.queue.remove(new.uid)
            if self.cluster.clear_nomination(new.uid) is not None:
                self._note(ClusterEvent.ASSIGNED_POD_GONE, new)

    def deleted(self, pod: Pod) -> None:
        """Take that a pod is gone, or has ended: only now is its silicon free."""
        self.queue.remove(pod.uid)
        self._warned.forget(pod.uid)
        pod_info, nominated_node = self.cluster.pod_info(pod.uid), self.cluster.clear_nomination(pod.uid)
        name = self.cluster.remove_pod(pod.uid)
        if name is not None or nominated_node is not None:
            self._note(ClusterEvent.ASSIGNED_POD_GONE, pod)
        self.gone(pod.uid)
        self.noticed(pod.uid, name or "")
        if pod_info is not None and pod_info.pod.started is None and not (pod.terminating or pod_info.unreadable):
            self.left(pod_info)

    def malformed(self, report: Malformed) -> None:
        """Take an object that cannot be read: on a node it may hold anything; its last good state, if any, is kept."""
        self.metrics.malformed("pods")
        if report.node_name and report.uid:
            self.queue.remove(report.uid)
            namespace, _, name = report.key.partition("/")
            self.cluster.put_unreadable_pod(
                Pod(uid=report.uid, namespace=namespace, name=name, node_name=report.node_name)
            )
        if self._warned(("malformed", report.key)):
            log.warning("Skipping malformed pod", pod=report.key, node=report.node_name, err=report.reason)
            pod_info = self.cluster.pod_info(report.uid)
            if pod_info is not None and pod_info.unreadable:
                self.unknown(pod_info.pod, pod_info.problem, ADVICE)

    def mended(self, report: Malformed) -> None:
        """Take that an unreadable object can be read again, which `added` or `updated` told before, or is gone."""
        self._warned.forget(("malformed", report.key))
        pod_info = self.cluster.pod_info(report.uid)
        if pod_info is not None and pod_info.unreadable:
            self.cluster.remove_pod(report.uid)
            self._note(ClusterEvent.ASSIGNED_POD_GONE, pod_info.pod)

    def tell_doubts(self) -> None:
        """Tell of all pods whose devices are unknown or claimed twice, by a replica that did not speak before."""
        for node_info in self.cluster.view.rows():
            if not (node_info.neuron_usage.double_booked or node_info.neuron_usage.unknown_holders):
                continue
            for uid, pod_info in node_info.pod_infos.items():
                if pod_info.cores is None:
                    self.unknown(pod_info.pod, pod_info.problem, ADVICE)
                for rival in node_info.conflicts(uid)[:1] if node_info.neuron_usage.double_booked else ():
                    self.double_booked(pod_info.pod, rival)

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name in self.scheduler_names and not pod.terminating

    def _assumed_changed(self, pod: Pod) -> None:
        """A pod on its way to a node is not queued anew, nor again once the server refuses it for being deleted."""
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
        if before is None or _told_differently(before, pod_info):
            self._report(pod_info)
        if before is None:
            self.came(pod.node_name)
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
        if old.started is None and new.started is not None:
            self.started(after)
        if (old.labels, old.terminating) != (new.labels, new.terminating):
            self._note(ClusterEvent.ASSIGNED_POD_LABELS, old, new)
        if _frees_something(before, after):
            self._note(ClusterEvent.ASSIGNED_POD_GONE, new)

    def _note(self, event: ClusterEvent, *pods: Pod, node_name: str = "") -> None:
        if self.queue.listening:
            node_info = self.cluster.node(node_name or pods[0].node_name)
            self.queue.note(event, *pods, on=None if node_info is None else Change(node_info))
            self.wake()

    def _report(self, pod_info: PodInfo) -> None:
        pod = pod_info.pod
        if pod_info.cores == 0:
            return
        if pod_info.problem and self._warned(pod.uid, pod_info.cores is None):
            if pod_info.cores is None:
                log.warning(UNKNOWN, pod=pod.key, node=pod.node_name, err=pod_info.problem, effect=EFFECT, hint=ADVICE)
                self.unknown(pod, pod_info.problem, ADVICE)
            else:
                log.warning(
                    "Pod's Neuron allocation is in doubt", pod=pod.key, node=pod.node_name, err=pod_info.problem
                )
        rivals = self.cluster.conflicts(pod.uid)
        if rivals:  # one is told: a node's pods may all claim the same cores, and pairs would be too many
            others = f"{rivals[0].key}{f' and {len(rivals) - 1} more' if len(rivals) > 1 else ''}"
            log.error("Pods claim the same Neuron cores", pod=pod.key, other=others, node=pod.node_name)
            self.double_booked(pod, rivals[0])
            self.double_booked(rivals[0], pod)


@attrs.define(eq=False, kw_only=True)
class NodeHandler:
    """
    Takes node events; the attributes are those of `PodHandler`, but that `gone` is told the names of nodes.

    Attributes:
        nomination_lost: told of a pod whose promised space went with its node, or its node's machine.
        changed: told the name of a node that has changed.
    """

    cluster: Cluster
    queue: SchedulingQueue
    metrics: Metrics
    wake: Callable[[], None]
    gone: Callable[[str], None]
    nomination_lost: Callable[[Pod], None]
    changed: Callable[[str], None] = _nobody_asks
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    def added(self, node: Node) -> None:
        """Take a node that was not there before."""
        log.info("Add event for node", v=3, node=node.name)
        self._put(node)
        self._note(node, None, (ClusterEvent.NODE_ADDED,))

    def updated(self, old: Node, new: Node) -> None:
        """Take a node's new state; what cannot help a pod wakes nobody."""
        known = self.cluster.node(new.name)
        if known is not None and known.node.uid == new.uid:
            old = known.node  # what pods were refused by: of an object that could not be read it is the last good state
            if new.refusal:
                new = attrs.evolve(old, refusal=new.refusal)
        self._put(new)
        events = (ClusterEvent.NODE_ADDED,) if old.uid != new.uid else tuple(node_events(old, new))
        self._note(new, old if old.uid == new.uid else None, events)
        self.changed(new.name)

    def deleted(self, node: Node) -> None:
        """Take that a node is gone; its pods stay on the books until they are gone too."""
        log.info("Delete event for node", v=3, node=node.name)
        for lost in self.cluster.remove_node(node.name):
            self.nomination_lost(lost.pod)
        self._warned.forget(node.name)
        self.gone(node.name)
        self.queue.note(ClusterEvent.NODE_DELETED)
        self.wake()

    def malformed(self, report: Malformed) -> None:
        """Take a node of which not even the name could be read, or whose last good state is kept."""
        self.metrics.malformed("nodes")
        if self._warned(("malformed", report.key)):
            log.warning("Skipping malformed node", node=report.key, err=report.reason)

    def mended(self, report: Malformed) -> None:
        """Take that an unreadable object can be read again, or is gone."""
        self._warned.forget(("malformed", report.key))

    def _note(self, node: Node, before: Node | None, events: Sequence[ClusterEvent]) -> None:
        if events and self.queue.listening:
            node_info = self.cluster.node(node.name)
            for event in events:
                self.queue.note(event, on=None if node_info is None else Change(node_info, (before,)))
            self.wake()

    def _put(self, node: Node) -> None:
        before, after = self.cluster.node(node.name), self.cluster.put_node(node)
        if before is not None and before.nominated != after.nominated:  # its machine is another, and so are its cores
            for lost in before.nominated:
                self.nomination_lost(lost.pod)
        if node.refusal:
            self.metrics.malformed("nodes")
        doubt = node.refusal or doubts(node)
        if not doubt:
            self._warned.forget(node.name)
        elif self._warned(node.name, doubt):
            log.warning("Neuron devices of node are not as expected", node=node.name, err=doubt)


def _told_differently(before: PodInfo, after: PodInfo) -> bool:
    """Tell whether there may be something new to report about a pod."""
    return (before.pod.node_name, before.cores, before.problem) != (after.pod.node_name, after.cores, after.problem)


def _frees_something(before: PodInfo, after: PodInfo) -> bool:
    """Tell whether others may fit now: the pod was scaled down, or its silicon is known at last."""
    if before.cores is None and after.cores is not None:
        return True
    then, now = before.pod.requests, after.pod.requests
    return now is not then and any(now.get(name, 0) < amount for name, amount in then.items())
