"""
Nodes: what an event means to the cluster, to waiting pods, and to pods that are nominated to the node.

Upstream: `pkg/scheduler/eventhandlers.go`. A node that cannot be read has a value too, which takes no pod
(`Node.refusal`), so most of them come as `added` and `updated`. Its problem is logged once.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.handlers.base import ObjectHandler
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.catalog import doubts
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent, node_events
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class NodeHandler(ObjectHandler[Node]):
    """
    Keeps the nodes.

    Attributes:
        gone: called with the name of a deleted node.
        nomination_lost: called with a pod whose nominated space is gone with the node, or with the node's machine.
        changed: called with the name of a node that has changed: it may take less, or fewer pods, than before.
        came: called with a node that was not there before.
    """

    MALFORMED: ClassVar[str] = "Skipping malformed node"
    NAMED: ClassVar[str] = "node"

    cluster: Cluster
    queue: SchedulingQueue
    gone: Callable[[str], None]
    nomination_lost: Callable[[Pod], None]
    changed: Callable[[str], None]
    came: Callable[[Node], None]
    resource: str = "nodes"
    _doubted: logs.Once = attrs.field(factory=logs.Once, init=False)

    def added(self, new: Node) -> None:
        """Keep a new node."""
        log.info("Add event for node", v=3, node=new.name)
        self._put(new)
        self._note(new, (ClusterEvent.NODE_ADDED,))
        self.came(new)

    def updated(self, old: Node, new: Node) -> None:
        """Replace a node; a change that cannot help a pod wakes none."""
        known = self.cluster.node(new.name)
        if known is not None and known.node.uid == new.uid:
            old = known.node  # by this one pods were refused: where `old` could not be read, the last good state
            if new.refusal:
                new = attrs.evolve(old, refusal=new.refusal)
        self._put(new)
        events = (ClusterEvent.NODE_ADDED,) if old.uid != new.uid else tuple(node_events(old, new))
        self._note(new, events)
        if old.uid != new.uid:
            self.came(new)
        self.changed(new.name)

    def deleted(self, old: Node) -> None:
        """Drop a node; its pods are kept until they are deleted too."""
        log.info("Delete event for node", v=3, node=old.name)
        for nomination in self.cluster.remove_node(old.name):
            self.nomination_lost(nomination.pod)
        self._doubted.forget(old.name)
        self.gone(old.name)
        self.queue.note(ClusterEvent.NODE_DELETED)

    def _note(self, node: Node, events: Sequence[ClusterEvent]) -> None:
        if events and self.queue.listening:
            node_info = self.cluster.node(node.name)
            for event in events:
                self.queue.note(event, on=node_info)

    def _put(self, node: Node) -> None:
        before, after = self.cluster.node(node.name), self.cluster.put_node(node)
        if (
            before is not None and before.nominations != after.nominations
        ):  # its machine is another, and so are its cores
            for nomination in before.nominations:
                self.nomination_lost(nomination.pod)
        if node.refusal:
            self.metrics.malformed(self.resource)
        doubt = node.refusal or doubts(node)
        if not doubt:
            self._doubted.forget(node.name)
        elif self._doubted(node.name, doubt):
            log.warning("Neuron devices of node are not as expected", node=node.name, err=doubt)
