"""
What the scheduler is made of: every part built from the settings and given the others it talks to.

Nothing runs here, and nothing is sent: that begins with `app`.
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.election_thread import ElectionThread
from neuron_scheduler.controllers.handlers.disruption_budgets import DisruptionBudgetHandler
from neuron_scheduler.controllers.handlers.namespaces import NamespaceHandler
from neuron_scheduler.controllers.handlers.nodes import NodeHandler
from neuron_scheduler.controllers.handlers.pods import PodHandler
from neuron_scheduler.controllers.handlers.storage import StorageHandler
from neuron_scheduler.controllers.handlers.workloads import WorkloadHandler
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.rejections import Rejections
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.controllers.stale_fence import StaleFence
from neuron_scheduler.controllers.volume_binder import VolumeBinder
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.disruption_budgets import BUDGETS
from neuron_scheduler.kube.objects.namespaces import NAMESPACES
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.storage import STORAGE
from neuron_scheduler.kube.objects.workloads import WORKLOADS
from neuron_scheduler.kube.pod_failures import PodFailures
from neuron_scheduler.kube.watch.informer import Informer
from neuron_scheduler.kube.watch.object_store import Handler, T
from neuron_scheduler.kube.writes.binder import Binder
from neuron_scheduler.kube.writes.condition_writer import ConditionWriter
from neuron_scheduler.kube.writes.event_recorder import EventRecorder
from neuron_scheduler.kube.writes.evictor import Evictor
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors


@attrs.frozen(eq=False, kw_only=True)
class Parts:
    """
    The parts that are run, asked or ended.

    Attributes:
        nodes, others, pods: the informers; pods are listed last, when what they refer to is known.
        election: None without leader election.
    """

    cluster: Cluster
    queue: SchedulingQueue
    scheduling_loop: SchedulingLoop
    binder: Binder
    volumes: VolumeBinder
    recorder: EventRecorder
    conditions: ConditionWriter
    nodes: Informer[Node]
    others: tuple[Informer[Any], ...]
    pods: Informer[Pod]
    pod_handler: PodHandler
    rejections: Rejections
    election: ElectionThread | None

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All of them, in the order in which they list."""
        return (self.nodes, *self.others, self.pods)


def wire(config: Config, client: Client, metrics: Metrics) -> Parts:
    """Build all parts from the settings."""
    election = _election(config, metrics) if config.leader_elect else None
    may_bind = election.may_bind if election is not None else _always
    cluster = Cluster()
    queue = SchedulingQueue(
        initial_backoff=config.pod_initial_backoff_seconds,
        max_backoff=config.pod_max_backoff_seconds,
        max_unschedulable=config.pod_max_in_unschedulable_pods_duration,
        entered=metrics.queued,
        row=cluster.node,
    )
    errors = UnexpectedErrors(metrics.unexpected)
    binder = Binder(client=client, may_send=may_bind, timeout=config.bind_timeout, errors=errors)
    if election is not None:
        binder.explained = StaleFence(
            leases=_leases(config, client),
            identity=election.identity,
            clock=time.monotonic,
            pause=queue.pause,
            counted=metrics.fence_stale,
        ).explained
    profiles = _profiles(config)
    recorder = EventRecorder(
        client=client,
        controllers=tuple(profiles),
        on_dropped=metrics.event_dropped,
        on_retry=metrics.retried,
        errors=errors,
    )
    conditions = ConditionWriter(client=client, on_retry=metrics.retried, errors=errors)
    reporter = PodReporter(recorder=recorder, conditions=conditions, clock=time.monotonic, leads=may_bind)
    volumes = VolumeBinder(
        cluster=cluster,
        writer=VolumeWriter(client=client, may_send=may_bind, timeout=config.bind_timeout),
        metrics=metrics,
        timeouts={profile.scheduler_name: profile.volume_bind_timeout for profile in config.profiles},
        clock=time.monotonic,
    )
    budgets = DisruptionBudgetHandler(metrics=metrics)
    preemption_executor = PreemptionExecutor(
        cluster=cluster,
        queue=queue,
        evictor=Evictor(client=client, may_send=may_bind, timeout=config.bind_timeout, on_retry=metrics.retried),
        reporter=reporter,
        metrics=metrics,
        budgets=budgets.all,
        clock=time.monotonic,
        give_up=lambda uid: loop.fence.give_up(uid),  # noqa: PLW0108 - there is no loop yet
        errors=errors,
    )
    loop = SchedulingLoop(
        cluster=cluster,
        queue=queue,
        profiles=profiles,
        binder=binder,
        volumes=volumes,
        preemption_executor=preemption_executor,
        reporter=reporter,
        metrics=metrics,
        clock=time.monotonic,
        wall_clock=time.time_ns,
        may_bind=may_bind,
        errors=errors,
        identity=election.identity if election is not None else "",
        bind_concurrency=config.bind_concurrency,
        allocate_fence=config.allocate_fence,
    )
    rejections = Rejections(
        cluster=cluster,
        failures=PodFailures(client=client),
        metrics=metrics,
        version=lambda: pods.version,
        scheduler_names=profiles.keys(),
        clock=time.monotonic,
        may_ask=may_bind,
        errors=errors,
    )
    pod_handler = _pod_handler(loop, reporter, volumes, rejections)
    pods = _informer(client, metrics, PODS, pod_handler)
    return Parts(
        cluster=cluster,
        queue=queue,
        scheduling_loop=loop,
        binder=binder,
        volumes=volumes,
        recorder=recorder,
        conditions=conditions,
        nodes=_informer(client, metrics, NODES, _node_handler(loop, preemption_executor, volumes, rejections)),
        others=tuple(_informer(client, metrics, *other) for other in _others(loop, volumes, budgets)),
        pods=pods,
        pod_handler=pod_handler,
        rejections=rejections,
        election=election,
    )


def _informer(client: Client, metrics: Metrics, resource: Resource[T], handler: Handler[T]) -> Informer[T]:
    return Informer(
        client=client,
        resource=resource,
        handler=handler,
        on_failure=metrics.watch_failed,
        on_unhandled=metrics.unhandled,
    )


def _node_handler(
    loop: SchedulingLoop, preemption_executor: PreemptionExecutor, volumes: VolumeBinder, rejections: Rejections
) -> NodeHandler:
    def gone(name: str) -> None:
        volumes.noticed(name)
        loop.fence.node_gone(name)
        rejections.forget(name)

    return NodeHandler(
        cluster=loop.cluster,
        queue=loop.queue,
        metrics=loop.metrics,
        gone=gone,
        nomination_lost=preemption_executor.nomination_lost,
        changed=loop.fence.node_changed,
    )


def _pod_handler(
    loop: SchedulingLoop, reporter: PodReporter, volumes: VolumeBinder, rejections: Rejections
) -> PodHandler:
    def gone(uid: str) -> None:
        reporter.forget(uid)
        volumes.noticed(uid)

    return PodHandler(
        cluster=loop.cluster,
        queue=loop.queue,
        metrics=loop.metrics,
        scheduler_names=loop.profiles.keys(),
        clock=loop.clock,
        gone=gone,
        came=loop.preemption_executor.recheck,
        left=rejections.left,
        started=rejections.started,
        double_booked=reporter.double_booked,
        unknown=reporter.allocation_unknown,
        noticed=loop.fence.noticed,
    )


def _others(
    loop: SchedulingLoop, volumes: VolumeBinder, budgets: DisruptionBudgetHandler
) -> Iterator[tuple[Resource[Any], Handler[Any]]]:
    """Yield all resources that are watched beside nodes and pods, each with its handler."""
    cluster, queue, metrics = loop.cluster, loop.queue, loop.metrics
    storage = StorageHandler(cluster=cluster, queue=queue, metrics=metrics, noticed=volumes.noticed)
    yield BUDGETS, budgets
    yield NAMESPACES, NamespaceHandler(namespaces=cluster.namespaces, queue=queue, metrics=metrics)
    for resource in WORKLOADS:
        yield resource, WorkloadHandler(workloads=cluster.workloads, metrics=metrics, resource=resource.name)
    for resource in STORAGE:
        yield resource, storage


def _profiles(config: Config) -> dict[str, Profile]:
    return {
        profile.scheduler_name: default_profile(
            profile.scheduler_name,
            count_unknown_only=profile.unknown_allocations == "count-only",
            preferences=PREFERENCES if profile.preferences is None else profile.preferences,
        )
        for profile in config.profiles
    }


def _election(config: Config, metrics: Metrics) -> ElectionThread:
    @asynccontextmanager
    async def connect() -> AsyncIterator[LeaseClient]:
        connection = await auth.load(config.kubeconfig or None, config.master or None)
        async with Client(
            connection=connection, on_request=lambda code, method: metrics.requested(method, code)
        ) as client:
            yield _leases(config, client)

    return ElectionThread(
        connect=connect,
        lease_duration=config.leader_elect_lease_duration,
        renew_deadline=config.leader_elect_renew_deadline,
        retry_period=config.leader_elect_retry_period,
    )


def _leases(config: Config, client: Client) -> LeaseClient:
    return LeaseClient(
        client=client,
        namespace=config.leader_elect_resource_namespace,
        name=config.leader_elect_resource_name,
    )


def _always() -> bool:
    return True
