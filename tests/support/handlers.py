"""The handlers of pods and nodes with cluster and queue of two profiles, without a loop."""

from typing import Any

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.controllers.handlers.nodes import NodeHandler
from neuron_scheduler.controllers.handlers.pods import PodHandler
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics

BACKOFF = 11.0  # seconds: longer than any backoff, short of the time after which all are tried again


@attrs.define(eq=False)
class World:
    """Handlers, cluster and queue of two profiles, without a loop."""

    now: float = 0.0
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    pods: PodHandler = attrs.field(init=False)
    nodes: NodeHandler = attrs.field(init=False)
    unknown: list[tuple[str, str]] = attrs.field(factory=list)
    left: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        shared: dict[str, Any] = {"cluster": self.cluster, "queue": self.queue, "metrics": Metrics()}
        shared["gone"] = lambda _: None
        self.pods = PodHandler(
            **shared,
            scheduler_names={"one", "two"},
            clock=lambda: self.now,
            came=lambda _: None,
            left=lambda pod_info: self.left.append(pod_info.pod.name),
            double_booked=lambda _, __: None,
            noticed=lambda *_: None,
            pending_elsewhere=lambda _: None,
            unknown=lambda pod, problem, _: self.unknown.append((pod.name, problem)),
        )
        self.nodes = NodeHandler(**shared, nomination_lost=lambda _: None, changed=lambda _: None, came=lambda _: None)

    def row(self, name: str) -> NodeInfo:
        """Return a node's row."""
        node_info = self.cluster.node(name)
        assert node_info is not None
        return node_info

    def settle(self) -> list[str]:
        """Try every ready pod, after all backoffs; return their names, and which of them fit."""
        self.now += BACKOFF
        tried = []
        while (queued := self.queue.pop(self.now)) is not None:
            decision = schedule_pod(self.cluster, queued.pod, default_profile(queued.pod.scheduler_name))
            if isinstance(decision, FitError):
                self.queue.unschedulable(queued, decision.plugins, self.now)
                tried.append(queued.pod.name)
            else:
                self.queue.remove(queued.pod.uid)
                tried.append(f"{queued.pod.name}: placed")
        return tried
