"""
The life of the process: runs all parts in one task group, and stops them.

    rights -> volumes, ... listed -> candidate for the Lease -> nodes and pods listed (ready) -> Lease -> pods as they
    are now -> schedule ... -> SIGTERM -> Bindings resolved -> Lease released -> Events written -> exit 0

If the Lease is free, it is taken before the first list of the pods, and there is no second list. Pods are listed beside
nodes: the API server takes longer for a page of nodes than we do. The Lease is released before the queued Events are
written: they need none, and a busy API server takes seconds for them.
A second signal ends the wait for Bindings and Events. A leader that does not schedule fails its liveness check, and
ends.
"""

import asyncio
import gc
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import anyio
import anyio.lowlevel
import attrs
from anyio.abc import TaskGroup, TaskStatus

from neuron_scheduler import __version__
from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.controllers.liveness import LeaderWatch
from neuron_scheduler.explain import inventory
from neuron_scheduler.explain.waiting import WaitingPods, waiting_pods
from neuron_scheduler.kube import reviews
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.kube.watch.discovery import served_kinds
from neuron_scheduler.kube.watch.informer import REMEDIES, STALE, Informer, sync_problem
from neuron_scheduler.scheduling.cycle.profile import extender_profile
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.serving.access import Access
from neuron_scheduler.serving.pages import WebPage, page_files
from neuron_scheduler.serving.questions import question_pages
from neuron_scheduler.serving.server import Endpoints, health, serve_endpoints
from neuron_scheduler.serving.sources import AnswerSources, DecisionRing, ServedProfiles
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.profile_config import RESERVED
from neuron_scheduler.stopping import REQUESTS, StopRequests
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import StalledError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.state_metrics import State
from neuron_scheduler.telemetry.unexpected import report_in_callback
from neuron_scheduler.wiring import Parts, optional_informer, wire

log = logs.logger(__name__)

WAITING = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
LOOK_FOR_KINDS = 30.0
"""Seconds between two looks whether the API server serves a kind that not every one serves."""
_OTHERS = "(others)"
"""The label of the nodes that are not named; no node can have this name."""
EVENTS_GRACE = 5.0
"""Seconds after the last Binding in which queued Events may still be written."""
_THRESHOLDS = (600, 1, 1)
"""
Thresholds of the garbage collector. A full collection follows the references of 4,200 new objects, which takes up to
4 ms with 100,000 nodes (7,000: 9 ms). What it leaves is frozen, so none looks at more in a larger fleet.
"""
_LARGE = 10_000
"""References in a list or dictionary that no collection follows while it is new."""
_LOOK_AT_ALL = 3600.0
"""Seconds between two looks at frozen objects, such as an error's frames (3 s with 600,000 pods)."""
_LONGEST_BUSY = 600.0
"""Seconds for which they wait for a moment without pods to schedule."""


async def run(config: Config) -> None:
    """Run the scheduler until SIGTERM or SIGINT; raises why it ended before."""
    async with build(config, REQUESTS) as app:
        await app.run()


@asynccontextmanager
async def build(config: Config, requests: StopRequests) -> AsyncIterator["App"]:
    """Build the whole process, which nothing runs yet."""
    names = [profile.scheduler_name for profile in config.profiles] if config.queue else []
    connection = await auth.load(config.kubeconfig or None, config.master or None)
    log.info(
        "Starting neuron-scheduler",
        version=__version__,
        server=connection.server,
        source=connection.source,
        schedulerNames=names,
        extender=config.extender_bind_address,
    )
    metrics = Metrics(names, config.leader_elect_resource_name, connection.server)
    async with Client(
        connection=connection,
        on_request=metrics.count_request,
        qps=config.kube_api_qps,
        burst=config.kube_api_burst,
        bind_concurrency=config.bind_concurrency,
    ) as client:
        decisions = DecisionRing(now=time.time) if config.answer_questions else None
        parts = wire(config, client, metrics, *(() if decisions is None else (decisions.note,)))
        yield App(config=config, client=client, metrics=metrics, parts=parts, requests=requests, decisions=decisions)


@contextmanager
def collections_in_steps() -> Iterator[None]:
    """
    Let each collection inside the block look at new objects only: those that a full one has left are frozen.

    So is a copy of a table, whose references take up to 10 ms to follow in each of three collections.
    """

    def on_collection(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            young = gc.get_objects(generation=0)
            may_freeze = any(len(each) > _LARGE for each in young if type(each) in (list, dict))
        else:
            may_freeze = info["generation"] == 2
        if may_freeze:
            gc.freeze()

    thresholds = gc.get_threshold()
    gc.callbacks.append(on_collection)
    gc.freeze()
    gc.collect()  # of nothing: the next full one starts when a quarter as much is new as this one leaves
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.callbacks.remove(on_collection)
        gc.set_threshold(*thresholds)


@attrs.define(eq=False, kw_only=True)
class App:
    """Runs the parts; without `decisions` it answers no questions."""

    config: Config
    client: Client
    metrics: Metrics
    parts: Parts
    requests: StopRequests = attrs.field(factory=StopRequests)
    decisions: DecisionRing | None = None
    _stopping: bool = attrs.field(default=False, init=False)
    _watch: LeaderWatch = attrs.field(init=False)
    _conditions: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _draining: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = LeaderWatch(
            election=self.parts.election,
            loop=self.parts.scheduling_loop,
            is_stopping=lambda: self._stopping,
            listed=lambda: self.parts.nodes.pages + self.parts.pods.pages,
        )

    async def run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(report_in_callback)
        state = ProcessState(self.parts)
        self.metrics.ask(state.read, state.prepare)
        with self.requests.listen() as requests, collections_in_steps():
            await self._run(requests)
        if not self._stopping:
            raise StalledError("a part of the scheduler ended although no stop was requested")

    async def _run(self, requests: AsyncIterator[signal.Signals]) -> None:
        async with self._serve(), anyio.create_task_group() as services:
            services.start_soon(self.parts.recorder.run)  # from the start: `_wind_down` waits for its end
            services.start_soon(self._watch.run)
            with anyio.CancelScope() as work:
                services.start_soon(self._stop_on_request, requests, work)
                await self._schedule(services)
            if self._stopping:
                await self._wind_down()
            services.cancel_scope.cancel()

    async def _schedule(self, services: TaskGroup) -> None:
        parts = self.parts
        await reviews.require(self.client, self._rights())
        await self._check_capacity_rights()
        await self._sync_all_but_pods(services)
        await services.start(self._watch_served_kinds, services)
        leads_at_once = await self._become_candidate(services)
        services.start_soon(parts.pods.run)
        await parts.pods.synced.wait()
        log.info("Caches are synced", nodes=parts.cluster.view.node_count, pods=parts.cluster.pod_count)
        services.start_soon(self._write_conditions)
        services.start_soon(self._collect_all)
        services.start_soon(parts.rejections.run)
        if parts.extender is not None:
            services.start_soon(parts.extender.foreign_nominations.run)
        await parts.scheduling_loop.attempts.warm_up()
        if parts.election is not None and not leads_at_once:
            await parts.election.acquired.wait()
            await parts.pods.catch_up()  # the first decision needs the last Bindings of the previous leader
            parts.watch_log.report_all()
        log.info(
            "Starting to schedule pods" if self.config.queue else "Starting to bind pods for kube-scheduler",
            nodes=parts.cluster.view.node_count,
            pods=parts.cluster.pod_count,
            pending=sum(map(parts.queue.count, WAITING)),
        )
        if parts.capacity is not None:
            services.start_soon(parts.capacity.run)
        if parts.claims is not None:
            services.start_soon(parts.claims.run)
        await parts.scheduling_loop.run()

    async def _sync_all_but_pods(self, services: TaskGroup) -> None:
        for informer in (self.parts.nodes, *self.parts.others):
            services.start_soon(informer.run)
        for informer in self.parts.others:
            await informer.synced.wait()
        await self.parts.nodes.begun.wait()  # who cannot list them must not take the Lease

    async def _watch_served_kinds(self, services: TaskGroup, *, task_status: TaskStatus[None]) -> None:
        """
        Watch the kinds that are served only by some, and that we may read, and look for more from time to time.

        Of a kind that is not served any more, another version is watched; without one, its objects are forgotten.
        It has started after the first look: from then on, groups without a count wait for their PodGroups.
        """
        informers, warned = dict[str, Informer[Any]](), logs.Once()
        while True:
            served = {each.group: each for each in await served_kinds(self.client, self.parts.optional_kinds)}
            for group in [each for each, informer in informers.items() if informer.problem == REMEDIES[404]]:
                if group in served:
                    informers[group].resource = served[group]
                else:
                    await self._forget(informers.pop(group))
            for resource in served.values():
                if resource.group in informers:
                    continue
                lacking = await reviews.missing_rights(self.client, reviews.rights_to_watch([resource]))
                if not lacking:
                    informers[resource.group] = optional_informer(self.parts, self.client, self.metrics, resource)
                    services.start_soon(informers[resource.group].run)
                elif warned(resource.group):
                    log.error(
                        "The API server does not allow a kind to be watched; pods are scheduled all the same",
                        kind=resource.kind,
                        missing=", ".join(lacking),
                        hint="apply manifests/base/rbac.yaml or the chart; for claims, manifests/components/claims",
                    )
            task_status.started()
            task_status = anyio.TASK_STATUS_IGNORED  # it may be told once
            await anyio.sleep(LOOK_FOR_KINDS)

    async def _forget(self, informer: Informer[Any]) -> None:
        """Forget a kind and its objects; what waits for its PodGroups waits no longer."""
        resource, groups = informer.resource, self.parts.cluster.groups
        log.warning("The API server does not serve a kind any more; its objects are forgotten", path=resource.path)
        groups.watched.discard(resource.group)
        informer.life.cancel()
        for key in [each for each in groups if each.dialect == resource.group]:
            self.parts.queue.group_changed(key, time.monotonic())
            await anyio.lowlevel.checkpoint()

    async def _become_candidate(self, services: TaskGroup) -> bool:
        """Become a candidate for the Lease, and return whether this replica leads already."""
        election = self.parts.election
        if election is None:
            self._watch.lead()
            return True
        services.start_soon(election.run, self.parts.pods.synced)
        await election.tried.wait()
        return election.is_leading

    async def _stop_on_request(self, requests: AsyncIterator[signal.Signals], work: anyio.CancelScope) -> None:
        """On the first signal wait for Bindings; on the second, or after the grace period, stop waiting."""
        loop, binder = self.parts.scheduling_loop, self.parts.binder
        async for request in requests:
            log.info("Stopping", signal=request.name, bindings=binder.in_flight, hurry=self._stopping)
            if self._stopping:
                self._draining.cancel()
            if self._stopping or loop.looked_at is None:
                work.cancel()
            else:
                loop.stop()
                work.deadline = anyio.current_time() + self.config.shutdown_grace_period
            self._stopping = True

    async def _write_conditions(self) -> None:
        with self._conditions:
            await self.parts.conditions.run()

    async def _collect_all(self) -> None:
        """Look for garbage among all objects from time to time, if possible in a moment without pods to schedule."""
        while True:
            await anyio.sleep(_LOOK_AT_ALL)
            with anyio.move_on_after(_LONGEST_BUSY):  # a standby's pods are active for as long as it does not lead
                while self.parts.queue.count(Place.ACTIVE) or self.parts.binder.in_flight:  # noqa: ASYNC110 - an hour's
                    await anyio.sleep(1.0)
            gc.freeze()  # a new table that a collection met would freeze all again, before it has looked
            gc.unfreeze()
            gc.collect()
            gc.collect()  # of nothing: else the next full one looks at a quarter of all that there is

    async def _wind_down(self) -> None:
        """Release the Lease if none of our Bindings can succeed after that, and write the queued Events."""
        self._conditions.cancel()  # the next leader tries these pods again, and writes what it finds
        if self.parts.election is not None:
            await self._leave(self.parts.election)
        with self._draining:
            await self.parts.recorder.drain(EVENTS_GRACE)

    async def _leave(self, election: LeaderElector) -> None:
        binder = self.parts.binder
        if election.is_leading and not binder.is_resolved:
            log.warning(
                "Lease is not released and will expire: the outcome of a Binding is unknown", bindings=binder.in_doubt
            )
        await election.leave(release=binder.is_resolved)

    @asynccontextmanager
    async def _serve(self) -> AsyncIterator[None]:
        config, election, extender, decisions = self.config, self.parts.election, self.parts.extender, self.decisions
        endpoints = Endpoints(
            address=config.bind_address,
            port=config.port,
            secure_port=config.secure_port if config.serves_tls else 0,
            cert_file=config.tls_cert_file,
            key_file=config.tls_private_key_file,
        )
        live = {"scheduling": self._watch.find_stall}
        if election is not None:
            live["leaderElection"] = election.find_overdue
        access = Access(reviews=UserReviews(self.client), clock=time.monotonic) if config.authorize_metrics else None
        ready = {"informer-sync": lambda: sync_problem(self.parts.informers), "watches": self._watch_problem}
        async with (
            serve_endpoints(
                endpoints,
                live=live,
                ready=ready,
                metrics=self.metrics,
                access=access,
                pages={} if decisions is None else pages_of(config, self.parts, self.client, decisions),
            ),
            nullcontext() if extender is None else extender.serve(health(live, ready), lambda: self._stopping),
        ):
            yield

    def _watch_problem(self) -> str | None:
        stale = [i.description for i in self.parts.informers if i.is_stale]
        return f"neither listed nor watched for {STALE:g} s: {', '.join(stale)}" if stale else None

    async def _check_capacity_rights(self) -> None:
        """Say which rights are missing for capacity requests; pods are scheduled without them."""
        if not self.config.capacity_requests:
            return
        lacking = await reviews.missing_rights(self.client, reviews.ASKING)
        if lacking:
            log.error(
                "The API server does not allow capacity requests; pods are scheduled all the same",
                missing=", ".join(lacking),
                hint="apply manifests/components/capacity-requests",
            )

    def _rights(self) -> tuple[reviews.Right, ...]:
        config = self.config
        needed = reviews.rights_to_schedule(informer.resource for informer in self.parts.informers)
        if self.parts.election is not None:
            needed += reviews.rights_to_lead(config.leader_elect_resource_namespace, config.leader_elect_resource_name)
        if config.claims:
            needed += reviews.CLAIMING
        reviewing = config.authorize_metrics or config.answer_questions
        return needed + reviews.REVIEWING if reviewing else needed


@attrs.define(eq=False)
class ProcessState:
    """
    The present state of all parts as /metrics shows it: what takes long is counted before, in small steps.

    It only reads: `explain.inventory` counts free blocks and what fits, `explain.waiting` what pods wait for.

    Attributes:
        clock: the clock of the queue.
    """

    parts: Parts
    clock: Callable[[], float] = time.monotonic
    _waiting: WaitingPods = attrs.field(factory=WaitingPods, init=False)

    def prepare(self) -> Iterator[None]:
        self._waiting = yield from waiting_pods(self.parts.queue)
        yield
        yield from inventory.prepare(self.parts.cluster)

    def read(self) -> State:
        """Return the state: that of the pods as last prepared, the rest as it is now."""
        parts, cluster = self.parts, self.parts.cluster
        devices = inventory.devices(cluster, waiting=self._waiting.block_sizes)
        return State(
            leader=parts.election.is_leading if parts.election is not None else True,
            watch_synced={informer.resource.name: int(informer.synced.is_set()) for informer in parts.informers},
            watch_stale={informer.resource.name: int(informer.is_stale) for informer in parts.informers},
            pending_pods={place: parts.queue.count(place) for place in WAITING},
            unschedulable_pods=parts.queue.refused_by_plugin(),
            cache_size={
                "nodes": cluster.view.node_count,
                "pods": cluster.pod_count,
                "assumed_pods": cluster.assumed_count,
            },
            pods_waiting={cause: self._waiting.by_cause[cause] for cause in Cause},
            neuron_pods_waiting=self._waiting.by_size,
            groups_waiting=parts.queue.groups.counts(),
            oldest_wait=self._waiting.waits(self.clock()),
            unknown_holders=inventory.unknown_holders(cluster),
            unknown_holders_by_node=self._unknown_holders_by_node(),
            conflicting_cores=inventory.double_booked_cores(cluster),
            binds_in_flight=parts.binder.in_flight,
            waiting_for_volumes=parts.volumes.waiting,
            waiting_for_allocate=parts.scheduling_loop.binding_cycle.fence.waiting_count,
            binds_unknown=parts.binder.in_doubt,
            free_devices=devices.free,
            used_devices=devices.used,
            withheld_devices=devices.withheld,
            largest_free_block=devices.largest_block,
            free_blocks=devices.blocks,
            would_fit=devices.fits,
            stranded_devices=devices.stranded,
            set_aside_devices=devices.set_aside,
            nodes_set_aside=parts.rejections.set_aside_count,
            terms_left_out=cluster.view.terms_left_out,
            capacity_requests={} if parts.capacity is None else parts.capacity.counts(),
            log_lines_dropped=logs.dropped_lines(),
            tasks=len(asyncio.all_tasks()),
        )

    def _unknown_holders_by_node(self) -> dict[str, int]:
        by_node, others = inventory.unknown_holders_by_node(self.parts.cluster)
        return by_node | ({_OTHERS: others} if others else {})


def pages_of(config: Config, parts: Parts, client: Client, decisions: DecisionRing) -> dict[str, WebPage]:
    election, capacity = parts.election, parts.capacity
    sources = AnswerSources(
        cluster=parts.cluster,
        queue=parts.queue,
        pod_of=lambda key: None if (pod := parts.pods.get(key)) is None else parts.cluster.with_claims(pod),
        unserved=lambda: [pod for pod in parts.unserved.values() if pod.scheduler_name != RESERVED],
        profiles=ServedProfiles(parts.scheduling_loop.attempts.profiles, extender_profile()),
        decisions=decisions,
        sync_problem=lambda: sync_problem(parts.informers),
        leads=lambda: election is None or election.is_leading,
        clock=time.monotonic,
        capacity_request_of=lambda pod: None if capacity is None else capacity.request_sentence(pod),
    )
    answers = question_pages(sources, UserReviews(client), public=config.serve_page)
    return answers | page_files() if config.serve_page else answers
