"""
Builds every part of the process from the settings and connects it with the parts that it calls.

A part of a product that is off is not built, and its module is not imported.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.foreign_nominations import ForeignNominations
from neuron_scheduler.controllers.handlers.nodes import NodeHandler
from neuron_scheduler.controllers.handlers.other_kinds import DisruptionBudgetHandler, PodGroupHandler, other_kinds
from neuron_scheduler.controllers.handlers.pods import PodHandler
from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.controllers.preemption_executor import PreemptionExecutor
from neuron_scheduler.controllers.rejections import Rejections
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.controllers.volume_binder import VolumeBinder
from neuron_scheduler.extender.bind import Bind
from neuron_scheduler.extender.forward import Forward, own_url
from neuron_scheduler.extender.preempt import Preempt
from neuron_scheduler.extender.verbs import Role, Verbs
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.pod_reads import PodFailures
from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.kube.watch.informer import Informer
from neuron_scheduler.kube.watch.object_store import Handler, T
from neuron_scheduler.kube.writes.binder import Binder
from neuron_scheduler.kube.writes.condition_writer import ConditionWriter
from neuron_scheduler.kube.writes.event_recorder import EventRecorder
from neuron_scheduler.kube.writes.evictor import Evictor
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, PodGroupObject
from neuron_scheduler.scheduling.cycle.profile import Profile, extender_profile, preemption_profile
from neuron_scheduler.scheduling.queue.group_waits import GroupWaits
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.serving.asked import Asked, DecisionRing, ServedProfiles
from neuron_scheduler.serving.pages import Page, page_files
from neuron_scheduler.serving.questions import question_pages
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profiles import profiles_of
from neuron_scheduler.settings.setting import address_and_port
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors


def election_of(config: Config, client: Client) -> LeaderElector:
    """Return the candidate of this process."""
    return LeaderElector(
        leases=LeaseClient(
            client=client,
            namespace=config.leader_elect_resource_namespace,
            name=config.leader_elect_resource_name,
        ),
        extender_address=_extender_url(config),
        lease_duration=config.leader_elect_lease_duration,
        renew_deadline=config.leader_elect_renew_deadline,
        retry_period=config.leader_elect_retry_period,
    )


def _extender_url(config: Config) -> str:
    """Return the URL at which other replicas reach the extender of this one; empty if it is off."""
    if not config.extender_bind_address:
        return ""
    address, port = address_and_port(config.extender_bind_address)
    return own_url(address, port, pod_ip=os.environ.get("POD_IP", ""), tls=bool(config.extender_tls_cert_file))


def forward_of(config: Config, election: LeaderElector) -> Forward:
    """Return what passes requests of kube-scheduler's on to the leader."""
    return Forward(
        leader=lambda: election.leader_address,
        identity=election.identity,
        cert_file=config.extender_tls_cert_file,
        key_file=config.extender_tls_private_key_file,
        client_ca_file=config.extender_client_ca_file,
    )


if TYPE_CHECKING:
    from neuron_scheduler.capacity.machines import MachineRequests  # imported only if a profile asks
    from neuron_scheduler.capacity.requester import CapacityRequester

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
        capacity: asks an autoscaler for machines; None if no profile says so.
        verbs: answer kube-scheduler; None if the extender is off, like `foreign_nominations`.
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
    capacity: "CapacityRequester | None"
    election: LeaderElector | None
    verbs: Verbs | None
    foreign_nominations: ForeignNominations | None

    @property
    def informers(self) -> tuple[Informer[Any], ...]:
        """All informers, in the order in which they list."""
        return (self.nodes, *self.others, self.pods)


def wire(config: Config, client: Client, metrics: Metrics) -> Parts:
    """Build all parts from the settings."""
    election = election_of(config, client) if config.leader_elect else None
    shared = _shared(config, client, metrics, election)
    recorder = _event_recorder(shared)
    conditions = ConditionWriter(
        client=client,
        known=lambda key: pods.get(key),  # noqa: PLW0108 - there is no informer yet
        on_retry=metrics.retried,
        errors=shared.errors,
    )
    reporter = PodReporter(recorder=recorder, conditions=conditions, clock=time.monotonic, leads=shared.may_bind)
    binder, volumes = _binder(shared, election), _volume_binder(shared)
    budgets = DisruptionBudgetHandler(metrics=metrics)
    executor = _preemption_executor(
        shared,
        reporter,
        budgets,
        give_up=lambda uid: loop.fence.give_up(uid),  # noqa: PLW0108 - there is no loop yet
    )
    loop = _scheduling_loop(
        shared,
        binder,
        volumes,
        executor,
        reporter,
        listing=lambda: pod_handler.listing(),  # noqa: PLW0108 - there is no handler yet, here and below
        defers=lambda node_name: pod_handler.defers(node_name),  # noqa: PLW0108
    )
    capacity = _capacity(shared, reporter) if config.capacity_requests else None
    machines = None if capacity is None else capacity.machines
    rejections = _rejections(shared, version=lambda: pods.version)
    foreign = None
    if config.extender_bind_address:
        profile = extender_profile()
        foreign = ForeignNominations(cluster=loop.cluster, queue=loop.queue, profile=profile, clock=loop.clock)
    pod_handler = _pod_handler(loop, reporter, volumes, rejections, foreign, machines=machines)
    pods = _informer(client, metrics, _pods(shared.profiles), pod_handler)
    pods.replacing = pod_handler.replacing
    node_handler = _node_handler(loop, executor, volumes, rejections, foreign, machines=machines)
    nodes = _informer(client, metrics, NODES, node_handler)
    kinds = other_kinds(loop.cluster, loop.queue, metrics, budgets=budgets, noticed=volumes.noticed)
    others = tuple(_informer(client, metrics, *kind) for kind in kinds)
    verbs = None
    if config.extender_bind_address:
        bind = _bind(loop, reporter, known=pods.get)
        verbs = Verbs(
            cluster=loop.cluster,
            profile=bind.profile,
            bind=bind,
            preempt=_preempt(loop, bind, budgets),
            forward=None if election is None else forward_of(config, election),
            unsynced=lambda: unsynced((nodes, *others, pods)),
            role=lambda: _role(bind, loop, election),
            clock=loop.clock,
            errors=loop.errors,
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
    )


def pages_of(config: Config, parts: Parts, client: Client) -> dict[str, Page]:
    """Return what the ports serve beside health and metrics, by path; by default nothing of the cluster is shown."""
    if not config.answer_questions:
        return {}
    election, capacity = parts.election, parts.capacity
    decisions = DecisionRing(now=time.time)
    parts.scheduling_loop.listeners.append(decisions.note)
    asked = Asked(
        cluster=parts.cluster,
        queue=parts.queue,
        pod_of=parts.pods.get,
        budgets=parts.budgets,
        profiles=ServedProfiles(parts.scheduling_loop.profiles, extender_profile()),
        decisions=decisions,
        unsynced=lambda: unsynced(parts.informers),
        leads=lambda: election is None or election.leading,
        clock=time.monotonic,
        capacity_request_of=lambda pod: None if capacity is None else capacity.said(pod),
    )
    answers = question_pages(asked, UserReviews(client), public=config.serve_page)
    return answers | page_files() if config.serve_page else answers


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


def _shared(config: Config, client: Client, metrics: Metrics, election: LeaderElector | None) -> _Shared:
    cluster = Cluster()
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
            groups=GroupWaits(cluster.groups),
        ),
        profiles=profiles_of(config),
        may_bind=(lambda: True) if election is None else election.may_bind,
        identity="" if election is None else election.identity,
    )


def _event_recorder(shared: _Shared) -> EventRecorder:
    return EventRecorder(
        client=shared.client,
        controllers=tuple(shared.profiles) or (_EXTENDER,),
        on_dropped=shared.metrics.event_dropped,
        on_retry=shared.metrics.retried,
        errors=shared.errors,
    )


def _binder(shared: _Shared, election: LeaderElector | None) -> Binder:
    config = shared.config
    lease = f"{config.leader_elect_resource_namespace}/{config.leader_elect_resource_name}"
    return Binder(
        client=shared.client,
        may_send=shared.may_bind,
        timeout=config.bind_timeout,
        errors=shared.errors,
        lease="" if election is None else lease,
        on_stale=shared.metrics.fence_stale,
    )


def _volume_binder(shared: _Shared) -> VolumeBinder:
    config = shared.config
    return VolumeBinder(
        cluster=shared.cluster,
        writer=VolumeWriter(
            client=shared.client,
            volumes=shared.cluster.volumes.stored_volumes.get,
            claims=shared.cluster.volumes.stored_claims.get,
            may_send=shared.may_bind,
            timeout=config.bind_timeout,
        ),
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
    shared: _Shared,
    binder: Binder,
    volumes: VolumeBinder,
    executor: PreemptionExecutor,
    reporter: PodReporter,
    *,
    listing: Callable[[], bool],
    defers: Callable[[str], bool],
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
        listing=listing,
        defers=defers,
        bind_concurrency=shared.config.bind_concurrency,
        allocate_fence=shared.config.allocate_fence,
    )


def _capacity(shared: _Shared, reporter: PodReporter) -> "CapacityRequester":
    """Return what asks for machines; nothing of it is imported before."""
    from neuron_scheduler.capacity.machines import MachineRequests
    from neuron_scheduler.capacity.requester import CapacityRequester
    from neuron_scheduler.capacity.writer import PlaceholderWriter

    machines = MachineRequests(
        cluster=shared.cluster,
        queue=shared.queue,
        scheduler_names=shared.profiles.keys(),
        policies=shared.config.capacity_requests,
        writer=PlaceholderWriter(client=shared.client, may_send=shared.may_bind, timeout=shared.config.bind_timeout),
        reporter=reporter,
        metrics=shared.metrics,
        clock=time.monotonic,
        errors=shared.errors,
    )
    return CapacityRequester(machines=machines, profiles=shared.profiles, may_ask=shared.may_bind)


def pod_group_informer(
    parts: Parts, client: Client, metrics: Metrics, resource: Resource[PodGroupObject]
) -> Informer[PodGroupObject]:
    """Return what watches a kind of PodGroup; groups that say no count wait for theirs from now on."""
    groups, clock = parts.cluster.groups, parts.scheduling_loop.clock
    groups.watched.add(Dialect(resource.group))
    handler = PodGroupHandler(groups=groups, queue=parts.queue, clock=clock, metrics=metrics)
    return _informer(client, metrics, resource, handler)


def unsynced(informers: Iterable[Informer[Any]]) -> str | None:
    """Return what is not listed yet, and why where that is known; None if all is."""
    missing = [informer.described for informer in informers if not informer.synced.is_set()]
    return f"not listed yet: {', '.join(missing)}" if missing else None


def _bind(loop: SchedulingLoop, reporter: PodReporter, *, known: Callable[[str], Pod | None]) -> Bind:
    return Bind(
        cluster=loop.cluster,
        profile=extender_profile(),
        assumptions=loop.assumptions,
        cycle=loop.binding_cycle,
        known=known,
        reporter=reporter,
        may_bind=loop.may_bind,
        own_names=loop.profiles.keys(),
        clock=loop.clock,
        counted=loop.metrics.extender_bound,
        errors=loop.errors,
    )


def _preempt(loop: SchedulingLoop, bind: Bind, budgets: DisruptionBudgetHandler) -> Preempt:
    return Preempt(
        cluster=loop.cluster,
        profile=preemption_profile(),
        beside=bind.profile,
        budgets=budgets.all,
        own_names=bind.own_names,
        abandoned=bind.abandoned,
        clock=loop.clock,
    )


def _role(bind: Bind, loop: SchedulingLoop, election: LeaderElector | None) -> Role:
    if bind.leads:
        return Role.LEADS
    if election is not None and not election.leading:
        return Role.FOLLOWS
    return Role.STOPS if loop.stopping else Role.TAKES_OVER


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


def _pods(profiles: Mapping[str, Profile]) -> Resource[Pod]:
    """Return the kind of pods, each as its profile decides it; as it is read if no profile asks for more."""
    asking = {name: profile for name, profile in profiles.items() if profile.allow_aligned_pairs}

    def read(struct: Any) -> Pod | None:
        pod = PODS.read(struct)
        return asking[pod.scheduler_name].own(pod) if pod and pod.scheduler_name in asking else pod

    return attrs.evolve(PODS, read=read) if asking else PODS


def _informer(client: Client, metrics: Metrics, resource: Resource[T], handler: Handler[T]) -> Informer[T]:
    return Informer(
        client=client,
        resource=resource,
        handler=handler,
        on_failure=metrics.watch_failed,
        on_unhandled=metrics.unhandled,
    )


def _node_handler(
    loop: SchedulingLoop,
    executor: PreemptionExecutor,
    volumes: VolumeBinder,
    rejections: Rejections,
    foreign: ForeignNominations | None,
    *,
    machines: "MachineRequests | None",
) -> NodeHandler:
    """Return the handler of nodes, after that of pods; `foreign` and `machines` are None if these are off."""

    def gone(name: str) -> None:
        volumes.noticed(name)
        loop.fence.node_gone(name)
        rejections.forget(name)

    def changed(name: str) -> None:
        if not loop.defers(name):
            _recheck(loop, foreign, name)
        if machines is not None:
            machines.node_changed(name)

    def came(node: Node) -> None:
        if machines is not None:
            machines.node_changed(node.name)
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


def _recheck(loop: SchedulingLoop, foreign: ForeignNominations | None, node_name: str) -> None:
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


def _pod_handler(
    loop: SchedulingLoop,
    reporter: PodReporter,
    volumes: VolumeBinder,
    rejections: Rejections,
    foreign: ForeignNominations | None,
    *,
    machines: "MachineRequests | None",
) -> PodHandler:
    """Return the handler of pods; `foreign` and `machines` are None if the extender or capacity requests are off."""

    def gone(uid: str) -> None:
        reporter.forget(uid)
        volumes.noticed(uid)
        if machines is not None:
            machines.pod_gone(uid)
        if foreign is not None:
            foreign.forget(uid)

    def noticed(uid: str, node_name: str) -> None:
        loop.fence.noticed(uid, node_name)
        if machines is not None and node_name:
            machines.pod_bound(uid)
        if foreign is not None:
            foreign.noticed(uid, node_name)

    def pending_elsewhere(pod: Pod) -> None:
        if machines is not None:
            machines.pod_seen(pod)
        if foreign is not None:
            foreign.pending(pod)

    return PodHandler(
        cluster=loop.cluster,
        queue=loop.queue,
        metrics=loop.metrics,
        scheduler_names=loop.profiles.keys(),
        clock=loop.clock,
        gone=gone,
        came=lambda name: _recheck(loop, foreign, name),
        left=rejections.left,
        double_booked=reporter.double_booked,
        unknown=reporter.allocation_unknown,
        noticed=noticed,
        pending_elsewhere=pending_elsewhere,
    )
