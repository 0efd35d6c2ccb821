"""
Builds the parts of the process that others share, in the order in which one needs another.

A part of a product that is off is not built, and its module is not imported. The road of a change through the parts is
the picture in `cluster/changes`.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.binding_cycle import BindingCycle
from neuron_scheduler.controllers.commitment import Announcer
from neuron_scheduler.controllers.group_attempt import GroupAttempts
from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.controllers.observers import Observers, PodList
from neuron_scheduler.controllers.pod_attempt import Listener, PodAttempts
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.rejections import Rejections
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.controllers.side_lane import SideLane
from neuron_scheduler.controllers.volume_binder import VolumeBinder
from neuron_scheduler.controllers.watch_handler import WatchHandler
from neuron_scheduler.controllers.watch_log import WatchLog
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.objects.pods import pods_through
from neuron_scheduler.kube.objects.watched import OTHER_KINDS
from neuron_scheduler.kube.pod_reads import failure_of
from neuron_scheduler.kube.watch.informer import Informer, sync_problem
from neuron_scheduler.kube.watch.object_store import T
from neuron_scheduler.kube.writes.binder import Binder
from neuron_scheduler.kube.writes.condition_writer import ConditionWriter
from neuron_scheduler.kube.writes.event_recorder import EventRecorder
from neuron_scheduler.kube.writes.evictor import Evictor
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import own_pods
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.queue_observer import QueueObserver
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profiles import profiles_of
from neuron_scheduler.settings.setting import address_and_port
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

if TYPE_CHECKING:
    from neuron_scheduler.capacity.requester import CapacityRequester
    from neuron_scheduler.controllers.claim_binder import ClaimBinder
    from neuron_scheduler.extender.build import Extender, ExtenderPort

_EXTENDER: Final = "neuron-scheduler"
"""The `reportingController` of Events about pods of kube-scheduler's, where there is no queue of our own."""


@attrs.frozen(eq=False, kw_only=True)
class Parts:
    """
    The parts that `app` runs, reads and stops.

    Attributes:
        nodes, others, pods: the informers; pods are listed last, when the objects that they refer to are known.
        election: None without leader election.
        unserved: the pending pods with Neuron of other schedulers, by uid.
        capacity: asks an autoscaler for machines; None if no profile says so.
        claims: writes claims on devices; None if they are off.
        optional_kinds: are watched where they are served.
        extender: answers kube-scheduler; None if it is off.
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
    observers: Observers
    watch_log: WatchLog
    rejections: Rejections
    unserved: Mapping[str, Pod]
    capacity: "CapacityRequester | None"
    claims: "ClaimBinder | None"
    optional_kinds: Sequence[Resource[Any]]
    election: LeaderElector | None
    extender: "Extender | None"

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All informers, in the order in which they list."""
        return (self.nodes, *self.others, self.pods)


def wire(config: Config, client: Client, metrics: Metrics, *listeners: Listener) -> Parts:
    clock, errors, profiles = time.monotonic, UnexpectedErrors(metrics.count_unexpected_error), profiles_of(config)
    extender_port = _extender_port(config) if config.extender_bind_address else None
    election = _election(config, client, extender_port) if config.leader_elect else None
    may_bind = partial(bool, True) if election is None else election.may_bind

    nodes = _informer(client, metrics, NODES)
    of_claims, optional = _claim_kinds(config)
    others = tuple(_informer(client, metrics, resource) for resource in (*OTHER_KINDS, *of_claims))
    pods = _informer(client, metrics, pods_through(own_pods(profiles.values())))
    pods.after = nodes.synced  # a pod whose node is not known costs twice

    wake_up, cluster = asyncio.Event(), Cluster()
    cluster.groups.served = frozenset(profiles)
    queue = SchedulingQueue(
        initial_backoff=config.pod_initial_backoff_seconds,
        max_backoff=config.pod_max_backoff_seconds,
        max_unschedulable=config.pod_max_in_unschedulable_pods_duration,
        on_entered=metrics.count_incoming_pod,
        view=cluster.view,
        groups=GroupWaits(cluster.groups),
        on_change=wake_up.set,
    )
    recorder = EventRecorder(
        client=client,
        controllers=tuple(profiles) or (_EXTENDER,),
        on_dropped=metrics.count_dropped_event,
        on_retry=metrics.count_retry,
        errors=errors,
    )
    conditions = ConditionWriter(client=client, pod_by_key=pods.get, on_retry=metrics.count_retry, errors=errors)
    reporter = PodReporter(recorder=recorder, conditions=conditions, clock=clock, may_bind=may_bind)
    binder = Binder(
        client=client,
        may_bind=may_bind,
        timeout=config.bind_timeout,
        errors=errors,
        lease=f"{config.leader_elect_resource_namespace}/{config.leader_elect_resource_name}" if election else "",
        on_stale=metrics.count_stale_fence,
    )
    volumes = VolumeBinder(
        cluster=cluster,
        writer=VolumeWriter(
            client=client,
            volume_by_name=cluster.volumes.stored_volumes.get,
            claim_by_key=cluster.volumes.stored_claims.get,
            may_bind=may_bind,
            timeout=config.bind_timeout,
        ),
        metrics=metrics,
        timeouts={profile.scheduler_name: profile.volume_bind_timeout for profile in config.profiles},
        clock=clock,
    )
    rejections = Rejections(
        cluster=cluster,
        failure_of=partial(failure_of, client),
        metrics=metrics,
        version=lambda: pods.version,
        clock=clock,
        may_bind=may_bind,
        errors=errors,
    )

    binding_cycle = BindingCycle(
        cluster=cluster,
        queue=queue,
        binder=binder,
        volumes=volumes,
        reporter=reporter,
        metrics=metrics,
        clock=clock,
        wall_clock=time.time_ns,
        may_bind=may_bind,
        errors=errors,
        concurrency=config.bind_concurrency,
        fenced=config.allocate_fence,
    )
    pod_list, warmup = PodList(), IndexWarmup()
    preemption_executor = PreemptionExecutor(
        cluster=cluster,
        queue=queue,
        evictor=Evictor(client=client, may_bind=may_bind, timeout=config.bind_timeout, on_retry=metrics.count_retry),
        reporter=reporter,
        metrics=metrics,
        pod_list=pod_list,
        fence=binding_cycle.fence,
        clock=clock,
        errors=errors,
    )
    attempts = PodAttempts(
        cluster=cluster,
        queue=queue,
        profiles=profiles,
        announcer=Announcer(
            cluster=cluster,
            queue=queue,
            recheck=preemption_executor.recheck,
            identity="" if election is None else election.identity,
        ),
        preemption_executor=preemption_executor,
        reporter=reporter,
        metrics=metrics,
        clock=clock,
        pod_list=pod_list,
        warmup=warmup,
        errors=errors,
        listeners=listeners,
    )
    loop = SchedulingLoop(
        cluster=cluster,
        queue=queue,
        attempts=attempts,
        group_attempts=GroupAttempts(
            cluster=cluster, queue=queue, clock=clock, attempts=attempts, fence=binding_cycle.fence
        ),
        side_lane=SideLane(
            cluster=cluster,
            queue=queue,
            profiles=profiles,
            warmup=warmup,
            clock=clock,
            on_ready=wake_up.set,
            on_crash=attempts.handle_crash,
        ),
        binding_cycle=binding_cycle,
        preemption_executor=preemption_executor,
        clock=clock,
        may_bind=may_bind,
        wake_up=wake_up,
    )

    capacity = None
    if config.capacity_requests:
        from neuron_scheduler.capacity.requester import requester_of

        capacity = requester_of(
            client, attempts, config.capacity_requests, timeout=config.bind_timeout, may_bind=may_bind
        )
    bounds = {profile.scheduler_name: profile.turn_after for profile in config.profiles if config.queue}
    if any(bounds.values()):
        from neuron_scheduler.controllers.turns import Turns

        loop.turns = Turns(
            cluster=cluster,
            queue=queue,
            profiles=profiles,
            bounds=bounds,
            warmup=warmup,
            pod_list=pod_list,
            report=reporter.report_turn,
            clock=clock,
            errors=errors,
        )
    extender = None
    if extender_port is not None:
        from neuron_scheduler.extender.build import extender_of

        not_listed = partial(sync_problem, (nodes, *others, pods))
        extender = extender_of(extender_port, loop, election, pod_by_key=pods.get, sync_problem=not_listed)

    claims = _claim_binder(config, client, attempts, binding_cycle, may_bind) if config.claims else None
    queue_observer = QueueObserver(cluster=cluster, queue=queue, scheduler_names=profiles.keys(), clock=clock)
    watch_log = WatchLog(cluster=cluster, reporter=reporter, metrics=metrics)
    foreign_nominations = None if extender is None else extender.foreign_nominations
    of_products = (claims, foreign_nominations, None if capacity is None else capacity.machines)
    observers = Observers(
        (
            queue_observer,
            binding_cycle.fence,  # before preemption: the pods of Bindings that wait may leave room for others
            preemption_executor,
            rejections,
            volumes,
            reporter,
            watch_log,
            *(part for part in of_products if part is not None),
        ),
        pod_list,
        errors,
    )
    if claims is not None:
        claims.tell = observers.tell
    for informer in (nodes, *others):
        informer.add_event_handler(WatchHandler(informer.resource, cluster, observers, metrics))
    pods.add_event_handler(WatchHandler(pods.resource, cluster, observers, metrics), listing=observers.list_context)
    return Parts(
        cluster=cluster,
        queue=queue,
        scheduling_loop=loop,
        binder=binder,
        volumes=volumes,
        recorder=recorder,
        conditions=conditions,
        nodes=nodes,
        others=others,
        pods=pods,
        observers=observers,
        watch_log=watch_log,
        rejections=rejections,
        unserved=queue_observer.unserved,
        capacity=capacity,
        claims=claims,
        optional_kinds=(*POD_GROUPS, *optional),
        election=election,
        extender=extender,
    )


def _claim_kinds(config: Config) -> tuple[Sequence[Resource[Any]], Sequence[Resource[Any]]]:
    """Return what is watched for claims, and what is where it is served."""
    if not config.claims:
        return (), ()
    from neuron_scheduler.kube.objects.devices import CLAIM_KINDS, TAINT_RULES

    return CLAIM_KINDS, (TAINT_RULES,)


def _claim_binder(
    config: Config, client: Client, attempts: PodAttempts, binding_cycle: BindingCycle, may_bind: Callable[[], bool]
) -> "ClaimBinder":
    """Turn claims on: the cluster reads them, and the binding cycle writes them."""
    from neuron_scheduler.cluster.tables.claims import Claims
    from neuron_scheduler.controllers.claim_binder import ClaimBinder
    from neuron_scheduler.kube.writes.claim_writer import ClaimWriter

    cluster = attempts.cluster
    cluster.claims = Claims()
    claims = binding_cycle.claims = ClaimBinder(
        cluster=cluster,
        claims=cluster.claims,
        writer=ClaimWriter(client=client, timeout=config.bind_timeout),
        may_bind=may_bind,
        queue=attempts.queue,
        reporter=attempts.reporter,
        clock=attempts.clock,
    )
    attempts.claims = claims
    return claims


def _extender_port(config: Config) -> "ExtenderPort":
    from neuron_scheduler.extender.build import ExtenderPort

    files = config.extender_tls_cert_file, config.extender_tls_private_key_file, config.extender_client_ca_file
    return ExtenderPort(*address_and_port(config.extender_bind_address), *files)


def _election(config: Config, client: Client, extender_port: "ExtenderPort | None") -> LeaderElector:
    return LeaderElector(
        leases=LeaseClient(
            client=client, namespace=config.leader_elect_resource_namespace, name=config.leader_elect_resource_name
        ),
        extender_address="" if extender_port is None else extender_port.url,
        lease_duration=config.leader_elect_lease_duration,
        renew_deadline=config.leader_elect_renew_deadline,
        retry_period=config.leader_elect_retry_period,
    )


def optional_informer(parts: Parts, client: Client, metrics: Metrics, resource: Resource[Any]) -> Informer[Any]:
    """Return what watches an optional kind; groups that say no count wait for their kind of PodGroup from now on."""
    parts.cluster.groups.watched.add(resource.group)
    informer = _informer(client, metrics, resource)
    informer.add_event_handler(WatchHandler(resource, parts.cluster, parts.observers, metrics))
    return informer


def _informer(client: Client, metrics: Metrics, resource: Resource[T]) -> Informer[T]:
    return Informer(
        client=client, resource=resource, on_failure=metrics.count_watch_failure, on_unhandled=metrics.count_unhandled
    )
