"""
What is watched, and which handler keeps it.

A new kind is one entry in `others`: its informer and its right to be listed and watched follow from it. All are
needed, and all are stable APIs of every supported Kubernetes: without one of them decisions would be wrong without a
sign, because a budget, a volume's limit or a pod's siblings would not count. So a replica is not ready until each has
been listed, and says which one is missing. Refuses to build informers: `wiring` gives each handler its own.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.handlers.disruption_budgets import DisruptionBudgetHandler
from neuron_scheduler.controllers.handlers.namespaces import NamespaceHandler
from neuron_scheduler.controllers.handlers.nodes import NodeHandler
from neuron_scheduler.controllers.handlers.pods import PodHandler
from neuron_scheduler.controllers.handlers.storage import StorageHandler
from neuron_scheduler.controllers.handlers.workloads import WorkloadHandler
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.disruption_budgets import BUDGETS
from neuron_scheduler.kube.objects.namespaces import NAMESPACES
from neuron_scheduler.kube.objects.storage import STORAGE
from neuron_scheduler.kube.objects.workloads import WORKLOADS
from neuron_scheduler.kube.watch.object_store import Handler
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics

if TYPE_CHECKING:  # the commands that read a cluster once use `others`, and import nothing that writes
    from neuron_scheduler.controllers.foreign_nominations import ForeignNominations
    from neuron_scheduler.controllers.machine_requests import MachineRequests
    from neuron_scheduler.controllers.pod_reporter import PodReporter
    from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
    from neuron_scheduler.controllers.rejections import Rejections
    from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
    from neuron_scheduler.controllers.volume_binder import VolumeBinder


def node_handler(
    loop: "SchedulingLoop",
    executor: "PreemptionExecutor",
    volumes: "VolumeBinder",
    rejections: "Rejections",
    foreign: "ForeignNominations | None",
    *,
    machines: "MachineRequests",
) -> NodeHandler:
    """Return the handler of nodes, after that of pods; `foreign` is None if the extender is off."""

    def gone(name: str) -> None:
        volumes.noticed(name)
        loop.fence.node_gone(name)
        rejections.forget(name)
        machines.node_gone(name)

    def changed(name: str) -> None:
        if not loop.pod_list.defers(name):
            _recheck(loop, foreign, name)
        machines.node_changed(name)

    def came(node: Node) -> None:
        machines.node_came(node)
        if foreign is not None:
            foreign.node_changed(node.name)

    return NodeHandler(
        cluster=loop.cluster,
        queue=loop.queue,
        metrics=loop.metrics,
        gone=gone,
        nomination_lost=executor.nomination_lost,
        changed=changed,
        came=came,
    )


def _recheck(loop: "SchedulingLoop", foreign: "ForeignNominations | None", node_name: str) -> None:
    """
    Look again at what was decided for a node and waits; first at Bindings, whose pods may leave room for others.

    The space that kube-scheduler has nominated comes last: another part of it may be kept than before. An error here
    is neither the node's nor that of the list of pods at whose end it is called.
    """
    try:
        loop.fence.node_changed(node_name)
        loop.preemption_executor.recheck(node_name)
        if foreign is not None:
            foreign.node_changed(node_name)
    except Exception as error:  # noqa: BLE001 - as above
        loop.errors.report(error, task="recheck", pod="")


def pod_handler(
    loop: "SchedulingLoop",
    reporter: "PodReporter",
    volumes: "VolumeBinder",
    rejections: "Rejections",
    foreign: "ForeignNominations | None",
    *,
    machines: "MachineRequests",
) -> PodHandler:
    """Return the handler of pods; `foreign` is None if the extender is off."""

    def gone(uid: str) -> None:
        reporter.forget(uid)
        volumes.noticed(uid)
        machines.gone(uid)
        if foreign is not None:
            foreign.forget(uid)

    def noticed(uid: str, node_name: str) -> None:
        loop.fence.noticed(uid, node_name)
        machines.noticed(uid, node_name)
        if foreign is not None:
            foreign.noticed(uid, node_name)

    def pending_elsewhere(pod: Pod) -> None:
        machines.seen(pod)
        if foreign is not None:
            foreign.pending(pod)

    handler = PodHandler(
        cluster=loop.cluster,
        queue=loop.queue,
        metrics=loop.metrics,
        scheduler_names=loop.profiles.keys(),
        clock=loop.clock,
        gone=gone,
        came=lambda name: _recheck(loop, foreign, name),
        left=rejections.left,
        started=rejections.started,
        double_booked=reporter.double_booked,
        unknown=reporter.allocation_unknown,
        noticed=noticed,
        pending_elsewhere=pending_elsewhere,
    )
    loop.pod_list.under_way, loop.pod_list.defers = handler.listing, handler.defers
    return handler


def others(
    cluster: Cluster,
    queue: SchedulingQueue,
    metrics: Metrics,
    *,
    budgets: DisruptionBudgetHandler,
    noticed: Callable[[str], None],
) -> Iterator[tuple[Resource[Any], Handler[Any]]]:
    """Yield every other watched resource with its handler; `noticed` is that of `StorageHandler`."""
    yield BUDGETS, budgets
    yield NAMESPACES, NamespaceHandler(namespaces=cluster.namespaces, queue=queue, metrics=metrics)
    for resource in WORKLOADS:
        yield resource, WorkloadHandler(workloads=cluster.workloads, metrics=metrics, resource=resource.name)
    for resource in STORAGE:
        yield resource, StorageHandler(cluster=cluster, queue=queue, metrics=metrics, noticed=noticed)
