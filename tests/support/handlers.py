"""What the watches of pods and nodes are handed to, with cluster and queue of two profiles, without a loop."""

from typing import Any

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.controllers.observers import PodList
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.controllers.watch_log import WatchLog
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import node, pod
from tests.support.loops import Recorder, Watches, watches_of
from tests.support.queueing import new_queue

BACKOFF = 11.0  # seconds: longer than any backoff, short of the time after which all are tried again


@attrs.define(eq=False)
class World:
    """
    Watches, cluster and queue of two profiles, without a loop.

    Attributes:
        told: the changes that observers are told.
        unknown, double_booked: what is reported to owners.
    """

    now: float = 0.0
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=new_queue)
    told: Recorder = attrs.field(factory=Recorder)
    pod_list: PodList = attrs.field(factory=PodList)
    watches: Watches = attrs.field(init=False)
    watch_log: WatchLog = attrs.field(init=False)
    pods: WatchHandler[Pod] = attrs.field(init=False)
    nodes: WatchHandler[Node] = attrs.field(init=False)
    unknown: list[tuple[str, str]] = attrs.field(factory=list)
    conflicts: list[tuple[str, str]] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        reporter: Any = self
        self.watch_log = WatchLog(cluster=self.cluster, reporter=reporter, metrics=Metrics())
        self.watches = watches_of(
            *(self.cluster, self.queue, self.told, self.watch_log),
            clock=lambda: self.now,
            scheduler_names=("one", "two"),
            pod_list=self.pod_list,
        )
        self.pods, self.nodes = self.watches.of(PODS), self.watches.of(NODES)

    def report_double_booking(self, pod: Pod, rival: Pod) -> None:
        self.conflicts.append((pod.name, rival.name))

    def report_unknown_allocation(self, pod: Pod, problem: str, _advice: str) -> None:
        self.unknown.append((pod.name, problem))

    def row(self, name: str) -> NodeInfo:
        """Return a node's row."""
        node_info = self.cluster.node(name)
        assert node_info is not None
        return node_info

    def held_by(self, name: str) -> PodInfo:
        """Return a pod on a node."""
        pod_info = self.cluster.pod_info(f"uid-{name}")
        assert pod_info is not None
        return pod_info

    def settle(self) -> list[str]:
        """Try every ready pod, after all backoffs; return their names, and which of them fit."""
        self.now += BACKOFF
        tried = []
        while (queued := self.queue.pop(self.now)) is not None:
            decision = schedule_pod(self.cluster, queued.pod, default_profile(queued.pod.scheduler_name))
            if isinstance(decision, FitError):
                self.queue.put_back_refused(queued, decision.plugins, self.now)
                tried.append(queued.pod.name)
            else:
                self.queue.remove(queued.pod.uid)
                tried.append(f"{queued.pod.name}: placed")
        return tried


def world_that_refuses() -> World:
    """Return a world where one pod waits for a label, another for devices, a third for cpu."""
    world = World()
    world.nodes.on_added(node("a", "trn1.32xlarge", cpu=4000))
    for index in range(4):
        world.pods.on_added(pod(f"d{index}", devices=4, on="a", ids=range(index * 4, index * 4 + 4)))
    world.pods.on_added(pod("c", cpu=3000, on="a"))
    world.pods.on_added(pod("label", scheduler_name="one", node_selector={"team": "blue"}, cpu=1))
    world.pods.on_added(pod("devices", scheduler_name="two", devices=8))
    world.pods.on_added(pod("cpu", scheduler_name="one", cpu=2000))
    world.pods.on_added(pod("theirs", scheduler_name="three", cpu=2000))
    assert world.settle() == ["label", "devices", "cpu"]
    return world
