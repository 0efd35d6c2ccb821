"""
Builds every part of the process from the settings and connects it with the parts that it calls.

What is watched is listed in `watched_kinds`, and `lease_wiring` builds what shares the Lease. Does not run or send
anything: `app` does.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from neuron_scheduler import watched_kinds
from neuron_scheduler.capacity_wiring import capacity_requester
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.capacity_requester import CapacityRequester
from neuron_scheduler.controllers.election_thread import ElectionThread
from neuron_scheduler.controllers.foreign_nominations import ForeignNominations
from neuron_scheduler.controllers.handlers.disruption_budgets import DisruptionBudgetHandler
from neuron_scheduler.controllers.handlers.pods import PodHandler
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.rejections import Rejections
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.controllers.stale_fence import StaleFence
from neuron_scheduler.controllers.volume_binder import VolumeBinder
from neuron_scheduler.extender.assembly import assembled
from neuron_scheduler.extender.verbs import Verbs
from neuron_scheduler.journal.files import output_to
from neuron_scheduler.journal.journal import Journal
from neuron_scheduler.journal.records import RecordedProfile
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.pod_failures import PodFailures
from neuron_scheduler.kube.watch.informer import Informer
from neuron_scheduler.kube.watch.object_store import Handler, T
from neuron_scheduler.kube.writes.binder import Binder
from neuron_scheduler.kube.writes.condition_writer import ConditionWriter
from neuron_scheduler.kube.writes.event_recorder import EventRecorder
from neuron_scheduler.kube.writes.evictor import Evictor
from neuron_scheduler.kube.writes.leader_requests import LeaderRequests
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.lease_wiring import election_of, forward_of, leases_of
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.profiles import count_unknown_only, preference_names, profiles_of
from neuron_scheduler.scheduling.cycle.profile import Profile, extender_profile
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.config import Config
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

_EXTENDER: Final = "neuron-scheduler"
"""The `reportingController` of Events about pods of kube-scheduler's, where there is no queue of our own."""


@attrs.frozen(eq=False, kw_only=True)
class Parts:
    """
    The parts that `app` runs, reads and stops.

    Attributes:
        nodes, others, pods: the informers; pods are listed last, when the objects that they refer to are known.
        election: None without leader election.
        budgets: all PodDisruptionBudgets.
        capacity: asks an autoscaler for machines, if a profile says so.
        verbs: answer kube-scheduler; None if the extender is off, like `foreign_nominations`.
        journal: None if it is off.
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
    budgets: Callable[[], tuple[DisruptionBudget, ...]]
    capacity: CapacityRequester
    election: ElectionThread | None
    verbs: Verbs | None
    foreign_nominations: ForeignNominations | None
    journal: Journal | None

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All informers, in the order in which they list."""
        return (self.nodes, *self.others, self.pods)


def wire(config: Config, client: Client, metrics: Metrics) -> Parts:
    """Build all parts from the settings."""
    election = election_of(config, metrics) if config.leader_elect else None
    shared = _shared(config, client, metrics, election)
    recorder = _event_recorder(shared)
    conditions = ConditionWriter(client=client, on_retry=metrics.retried, errors=shared.errors)
    reporter = PodReporter(recorder=recorder, conditions=conditions, clock=time.monotonic, leads=shared.may_bind)
    binder, volumes = _binder(shared, election), _volume_binder(shared)
    budgets = DisruptionBudgetHandler(metrics=metrics)
    executor = _preemption_executor(
        shared,
        reporter,
        budgets,
        give_up=lambda uid: loop.fence.give_up(uid),  # noqa: PLW0108 - there is no loop yet
    )
    loop = _scheduling_loop(shared, binder, volumes, executor, reporter)
    capacity = capacity_requester(config, _leader_requests(shared), loop, reporter)
    rejections = _rejections(shared, version=lambda: pods.version)
    foreign = _foreign_nominations(config, loop) if config.extender_bind_address else None
    pod_handler = watched_kinds.pod_handler(loop, reporter, volumes, rejections, foreign, machines=capacity.machines)
    pods = _informer(client, metrics, PODS, pod_handler)
    pods.replacing = pod_handler.replacing
    node_handler = watched_kinds.node_handler(loop, executor, volumes, rejections, foreign, machines=capacity.machines)
    nodes = _informer(client, metrics, NODES, node_handler)
    other_kinds = watched_kinds.others(loop.cluster, loop.queue, metrics, budgets=budgets, noticed=volumes.noticed)
    others = tuple(_informer(client, metrics, *kind) for kind in other_kinds)
    verbs = None
    if config.extender_bind_address:
        verbs = assembled(
            loop=loop,
            reporter=reporter,
            election=election,
            client=client,
            known=pods.get,
            unsynced=lambda: unsynced((nodes, *others, pods)),
            forward=None if election is None else forward_of(config, election),
            budgets=budgets.all,
            count_unknown_only=count_unknown_only(config),
        )
    return Parts(
        cluster=shared.cluster,
        queue=shared.queue,
        scheduling_loop=loop,
        binder=binder,
        volumes=volumes,
        recorder=recorder,
        conditions=conditions,
        nodes=nodes,
        others=others,
        pods=pods,
        pod_handler=pod_handler,
        rejections=rejections,
        budgets=budgets.all,
        capacity=capacity,
        election=election,
        verbs=verbs,
        foreign_nominations=foreign,
        journal=shared.journal,
    )


@attrs.frozen(eq=False, kw_only=True)
class _Shared:
    """What several parts are given."""

    config: Config
    client: Client
    metrics: Metrics
    errors: UnexpectedErrors
    cluster: Cluster
    queue: SchedulingQueue
    profiles: dict[str, Profile]
    may_bind: Callable[[], bool]
    identity: str
    journal: Journal | None


def _shared(config: Config, client: Client, metrics: Metrics, election: ElectionThread | None) -> _Shared:
    journal = _journal(config, metrics) if config.decision_journal else None
    cluster = Cluster() if journal is None else journal.cluster
    return _Shared(
        config=config,
        client=client,
        metrics=metrics,
        errors=UnexpectedErrors(metrics.unexpected),
        cluster=cluster,
        queue=SchedulingQueue(
            initial_backoff=config.pod_initial_backoff_seconds,
            max_backoff=config.pod_max_backoff_seconds,
            max_unschedulable=config.pod_max_in_unschedulable_pods_duration,
            entered=metrics.queued,
            row=cluster.node,
        ),
        profiles=profiles_of(config),
        may_bind=_always if election is None else election.may_bind,
        identity="" if election is None else election.identity,
        journal=journal,
    )


def _journal(config: Config, metrics: Metrics) -> Journal:
    """Return the journal of the configuration."""
    output = output_to(
        config.decision_journal, most_bytes=config.decision_journal_max_bytes, keep=config.decision_journal_files
    )
    profiles = tuple(
        RecordedProfile(
            profile.scheduler_name, preference_names(profile), count_unknown_only=profile.count_unknown_only
        )
        for profile in config.profiles
    )
    return Journal(output=output, profiles=profiles, wall_clock=time.time, lost=metrics.journal_lost)


def _event_recorder(shared: _Shared) -> EventRecorder:
    return EventRecorder(
        client=shared.client,
        controllers=tuple(shared.profiles) or (_EXTENDER,),
        on_dropped=shared.metrics.event_dropped,
        on_retry=shared.metrics.retried,
        errors=shared.errors,
    )


def _binder(shared: _Shared, election: ElectionThread | None) -> Binder:
    config = shared.config
    binder = Binder(client=shared.client, may_send=shared.may_bind, timeout=config.bind_timeout, errors=shared.errors)
    if election is not None:
        binder.explained = StaleFence(
            leases=leases_of(config, shared.client),
            identity=shared.identity,
            clock=time.monotonic,
            pause=shared.queue.pause,
            counted=shared.metrics.fence_stale,
        ).explained
    return binder


def _volume_binder(shared: _Shared) -> VolumeBinder:
    config = shared.config
    return VolumeBinder(
        cluster=shared.cluster,
        writer=VolumeWriter(client=shared.client, may_send=shared.may_bind, timeout=config.bind_timeout),
        metrics=shared.metrics,
        timeouts={profile.scheduler_name: profile.volume_bind_timeout for profile in config.profiles},
        clock=time.monotonic,
    )


def _preemption_executor(
    shared: _Shared, reporter: PodReporter, budgets: DisruptionBudgetHandler, *, give_up: Callable[[str], bool]
) -> PreemptionExecutor:
    return PreemptionExecutor(
        cluster=shared.cluster,
        queue=shared.queue,
        evictor=Evictor(
            client=shared.client,
            may_send=shared.may_bind,
            timeout=shared.config.bind_timeout,
            on_retry=shared.metrics.retried,
        ),
        reporter=reporter,
        metrics=shared.metrics,
        budgets=budgets.all,
        clock=time.monotonic,
        give_up=give_up,
        errors=shared.errors,
    )


def _scheduling_loop(
    shared: _Shared, binder: Binder, volumes: VolumeBinder, executor: PreemptionExecutor, reporter: PodReporter
) -> SchedulingLoop:
    return SchedulingLoop(
        cluster=shared.cluster,
        queue=shared.queue,
        profiles=shared.profiles,
        binder=binder,
        volumes=volumes,
        preemption_executor=executor,
        reporter=reporter,
        metrics=shared.metrics,
        clock=time.monotonic,
        wall_clock=time.time_ns,
        may_bind=shared.may_bind,
        errors=shared.errors,
        identity=shared.identity,
        bind_concurrency=shared.config.bind_concurrency,
        allocate_fence=shared.config.allocate_fence,
        listeners=[] if shared.journal is None else [shared.journal.decided],
    )


def _leader_requests(shared: _Shared) -> LeaderRequests:
    return LeaderRequests(client=shared.client, may_send=shared.may_bind, timeout=shared.config.bind_timeout)


def unsynced(informers: Iterable[Informer[Any]]) -> str | None:
    """Return what is not listed yet, and why where that is known; None if all is."""
    missing = [informer.described for informer in informers if not informer.synced.is_set()]
    return f"not listed yet: {', '.join(missing)}" if missing else None


def _foreign_nominations(config: Config, loop: SchedulingLoop) -> ForeignNominations:
    return ForeignNominations(
        cluster=loop.cluster,
        queue=loop.queue,
        profile=extender_profile(count_unknown_only=count_unknown_only(config)),
        clock=loop.clock,
    )


def _rejections(shared: _Shared, *, version: Callable[[], str]) -> Rejections:
    return Rejections(
        cluster=shared.cluster,
        failures=PodFailures(client=shared.client),
        metrics=shared.metrics,
        version=version,
        scheduler_names=shared.profiles.keys(),
        clock=time.monotonic,
        may_ask=shared.may_bind,
        errors=shared.errors,
    )


def _informer(client: Client, metrics: Metrics, resource: Resource[T], handler: Handler[T]) -> Informer[T]:
    return Informer(
        client=client,
        resource=resource,
        handler=handler,
        on_failure=metrics.watch_failed,
        on_unhandled=metrics.unhandled,
    )


def _always() -> bool:
    return True
