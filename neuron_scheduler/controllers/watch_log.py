"""
Tells people what the watch shows: nodes that come and go, and Neuron devices that are not accounted for.

Cores that two pods claim are reported when all pods of their node are known, not in the middle of a list.
"""

from typing import ClassVar, Final

import attrs

from neuron_scheduler.cluster.changes import Change, Kinds, NodeChanged, NodeGone, PodDoubted, PodGone
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.catalog import doubts
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

UNKNOWN: Final = "Pod uses Neuron devices, but their ids are unknown"
EFFECT: Final = "until it ends, its node gets no pod with several devices or cores"
ADVICE: Final = (
    "set schedulerName on every pod that asks for Neuron, and spec.nodeName on none, so that its devices are known"
)

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class WatchLog:
    """Writes the log lines, and the Events about bound pods."""

    OBSERVES: ClassVar[Kinds] = (PodDoubted, PodGone, NodeChanged, NodeGone)

    cluster: Cluster
    reporter: PodReporter
    metrics: Metrics
    _unknown: logs.Once = attrs.field(factory=logs.Once, init=False)
    _doubts: logs.Once = attrs.field(factory=logs.Once, init=False)

    def observe(self, change: Change) -> None:
        match change:
            case PodDoubted(uid):
                pod_info = self.cluster.pod_info(uid)
                if pod_info is not None:
                    self._report_unknown(pod_info)
                    self._report_conflict(pod_info.pod)
            case PodGone(pod):
                self._unknown.forget(pod.uid)
            case NodeChanged(before, after):
                if before is None:
                    log.info("Add event for node", v=3, node=after.node.name)
                self._doubt(after.node)
            case NodeGone(node_name):
                log.info("Delete event for node", v=3, node=node_name)
                self._doubts.forget(node_name)

    def report_all(self) -> None:
        """Report all pods whose devices are unknown or claimed twice, when this replica becomes the leader."""
        for node_info in self.cluster.view.rows():
            if not (node_info.neuron_usage.double_booked or node_info.neuron_usage.unknown_holders):
                continue
            for uid, pod_info in node_info.pod_infos.items():
                if pod_info.cores is None:
                    self.reporter.report_unknown_allocation(pod_info.pod, pod_info.problem, ADVICE)
                for rival in node_info.conflicts(uid)[:1] if node_info.neuron_usage.double_booked else ():
                    self.reporter.report_double_booking(pod_info.pod, rival)

    def _report_unknown(self, pod_info: PodInfo) -> None:
        """Report what is unknown about a pod's devices; an unreadable pod has its line in the log already."""
        pod, is_unknown = pod_info.pod, pod_info.cores is None
        if not pod_info.problem or not self._unknown(pod.uid, is_unknown):
            return
        if is_unknown:
            self.reporter.report_unknown_allocation(pod, pod_info.problem, ADVICE)
        if is_unknown and not pod_info.unreadable:
            log.warning(UNKNOWN, pod=pod.key, node=pod.node_name, err=pod_info.problem, effect=EFFECT, hint=ADVICE)
        elif not is_unknown:
            log.warning("Pod's Neuron allocation is in doubt", pod=pod.key, node=pod.node_name, err=pod_info.problem)

    def _report_conflict(self, pod: Pod) -> None:
        """Report the cores that are claimed twice; the first rival only: all pods of a node may claim the same ones."""
        rivals = self.cluster.conflicts(pod.uid)
        if rivals:
            more = f" and {len(rivals) - 1} more" if len(rivals) > 1 else ""
            log.error("Pods claim the same Neuron cores", pod=pod.key, other=rivals[0].key + more, node=pod.node_name)
            self.reporter.report_double_booking(pod, rivals[0])
            self.reporter.report_double_booking(rivals[0], pod)

    def _doubt(self, node: Node) -> None:
        if node.refusal:
            self.metrics.count_malformed("nodes")
        doubt = node.refusal or doubts(node)
        if not doubt:
            self._doubts.forget(node.name)
        elif self._doubts(node.name, doubt):
            if node.refusal:
                log.warning("Skipping malformed node", node=node.name, err=doubt)
            else:
                log.warning("Neuron devices of node are not as expected", node=node.name, err=doubt)
