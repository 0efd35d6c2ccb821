"""
The life of the process: runs all parts in one task group, and stops them.

    rights -> nodes, volumes, ... listed -> candidate for the Lease -> pods listed (ready) -> Lease -> pods listed again
    -> schedule ... -> SIGTERM -> Bindings resolved -> Lease released -> Events written -> exit 0

If the Lease is free, it is taken before the first list of the pods, and there is no second list. The Lease is released
before the queued Events are written: they need none, and a busy API server takes seconds for them.
A second signal ends the wait for Bindings and Events. A leader that does not schedule fails its liveness check, and
ends. `wiring` builds the parts. Does not do any of their work itself.
"""

import gc
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import anyio
import attrs
from anyio.abc import TaskGroup

from neuron_scheduler import __version__
from neuron_scheduler.capacity_wiring import rights as capacity_rights
from neuron_scheduler.controllers.election_thread import ElectionThread
from neuron_scheduler.controllers.leader_watch import LeaderWatch
from neuron_scheduler.endpoints.access import Access
from neuron_scheduler.endpoints.server import Check, Endpoints, health, lease_watchdog, serving
from neuron_scheduler.errors import StalledError
from neuron_scheduler.kube import access_review
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.user_review import UserReviews
from neuron_scheduler.kube.watch.informer import STALE
from neuron_scheduler.process_state import WAITING, ProcessState
from neuron_scheduler.profiles import count_unknown_only
from neuron_scheduler.question_wiring import pages_of
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.extender_port import address_and_port
from neuron_scheduler.stopping import REQUESTS, StopRequests
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.wiring import Parts, unsynced, wire

log = logs.logger(__name__)

EVENTS_GRACE = 5.0
"""Seconds after the last Binding in which queued Events may still be written."""
_WHILE_LISTING = (*gc.get_threshold()[:2], 1 << 30)
"""
Thresholds of the garbage collector while the informers list. Their objects stay, and are frozen after the last list: a
collection meanwhile, or one at the end, would block the event loop for a tenth of a second and more with 30,000 pods.
"""
_WHILE_SCHEDULING = (5_000, 2, 20)
"""
Thresholds of the garbage collector afterwards. A pod's objects form no cycle, and most are freed within a tenth of a
second, before a rare collection examines them. Measured: half of the default's time, in steps of 11 ms at most.
"""


async def run(config: Config) -> None:
    """
    Run the scheduler until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: it cannot run with this configuration.
        LeaseLostError: another replica may be leading.
        StalledError: it leads and does not schedule.
    """
    async with built(config, REQUESTS) as app:
        await app.run()


@asynccontextmanager
async def built(config: Config, requests: StopRequests) -> AsyncIterator["App"]:
    """
    Build the whole process, which nothing runs yet.

    Raises:
        ConfigurationError: the credentials or the address of the API server cannot be used.
    """
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
        on_request=lambda code, method: metrics.requested(method, code),
        on_answer=metrics.request_took,
        qps=config.kube_api_qps,
        burst=config.kube_api_burst,
        bind_concurrency=config.bind_concurrency,
        own_http=config.own_http,
    ) as client:
        parts = wire(config, client, metrics)
        yield App(config=config, client=client, metrics=metrics, parts=parts, requests=requests)


@attrs.define(eq=False, kw_only=True)
class App:
    """Runs the parts."""

    config: Config
    client: Client
    metrics: Metrics
    parts: Parts
    requests: StopRequests = attrs.field(factory=StopRequests)
    _stopping: bool = attrs.field(default=False, init=False)
    _watch: LeaderWatch = attrs.field(init=False)
    _conditions: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    _draining: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = LeaderWatch(
            election=self.parts.election,
            loop=self.parts.scheduling_loop,
            renew_deadline=self.config.leader_elect_renew_deadline,
            stopping=lambda: self._stopping,
        )

    async def run(self) -> None:
        """Run until asked to stop; a failure of any part ends all."""
        state = ProcessState(self.parts, count_unknown_only=count_unknown_only(self.config))
        self.metrics.ask(state.read, state.prepared)
        try:
            with self.requests.listening() as requests:
                await self._run(requests)
        finally:
            if self.parts.journal is not None:
                await self.parts.journal.finish()
            if self.parts.election is not None:
                await self.parts.election.leave(release=False)  # has no effect after a clean stop
        if not self._stopping:
            raise StalledError("a part of the scheduler ended although no stop was requested")

    async def _run(self, requests: AsyncIterator[signal.Signals]) -> None:
        async with self._serving(), anyio.create_task_group() as services:
            services.start_soon(self.parts.recorder.run)  # from the start: `_wind_down` waits for its end
            services.start_soon(self._watch.run)
            with anyio.CancelScope() as work:
                services.start_soon(self._stop_on_request, requests, work)
                await self._schedule(services)
            if self._stopping:
                await self._wind_down()
            services.cancel_scope.cancel()

    async def _schedule(self, services: TaskGroup) -> None:
        """Go through the stages of a scheduler's life; each writes a log line."""
        parts = self.parts
        gc.set_threshold(*_WHILE_LISTING)
        await access_review.require(self.client, self._rights())
        await self._check_capacity_rights()
        await self._sync_all_but_pods(services)
        leads_at_once = await self._become_candidate(services)
        services.start_soon(parts.pods.run)
        await parts.pods.synced.wait()
        gc.freeze()
        gc.set_threshold(*_WHILE_SCHEDULING)
        log.info("Caches are synced", nodes=parts.cluster.view.node_count, pods=parts.cluster.pod_count)
        services.start_soon(self._write_conditions)
        services.start_soon(parts.rejections.run)
        if parts.foreign_nominations is not None:
            services.start_soon(parts.foreign_nominations.run)
        await parts.scheduling_loop.warm_up()
        if parts.election is not None and not leads_at_once:
            await parts.election.acquire()
            self._watch.beat()
            await parts.pods.resync()  # the first decision needs the last Bindings of the previous leader
            parts.pod_handler.report_doubts()
        log.info(
            "Starting to schedule pods" if self.config.queue else "Starting to bind pods for kube-scheduler",
            nodes=parts.cluster.view.node_count,
            pods=parts.cluster.pod_count,
            pending=sum(map(parts.queue.count, WAITING)),
        )
        if parts.journal is not None:
            services.start_soon(parts.journal.run)
        services.start_soon(parts.capacity.run)
        await parts.scheduling_loop.run()

    async def _sync_all_but_pods(self, services: TaskGroup) -> None:
        """Wait until all that pods refer to is listed."""
        informers = (self.parts.nodes, *self.parts.others)
        for informer in informers:
            services.start_soon(informer.run)
        for informer in informers:
            await informer.synced.wait()
        _ = self.parts.cluster.view.live  # numbers the nodes, which takes longer once they have pods

    async def _become_candidate(self, services: TaskGroup) -> bool:
        """Become a candidate for the Lease, and return whether this replica leads already."""
        election = self.parts.election
        if election is None:
            self._watch.lead()
            return True
        leads = await election.start()
        services.start_soon(election.hold)
        self._watch.beat()
        return leads

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
        """Write the conditions of waiting pods until the Lease is about to be released."""
        with self._conditions:
            await self.parts.conditions.run()

    async def _wind_down(self) -> None:
        """Release the Lease if none of our Bindings can succeed after that, and write the queued Events."""
        self._conditions.cancel()  # the next leader tries these pods again, and writes what it finds
        if self.parts.election is not None:
            await self._leave(self.parts.election)
        with self._draining:
            await self.parts.recorder.drain(EVENTS_GRACE)

    async def _leave(self, election: ElectionThread) -> None:
        binder = self.parts.binder
        if election.leading and not binder.resolved:
            log.warning(
                "Lease is not released and will expire: the outcome of a Binding is unknown", bindings=binder.unknown
            )
        await election.leave(release=binder.resolved)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        config, election = self.config, self.parts.election
        endpoints = Endpoints(
            address=config.bind_address,
            port=config.port,
            secure_port=config.secure_port if config.serves_tls else 0,
            cert_file=config.tls_cert_file,
            key_file=config.tls_private_key_file,
        )
        live = {"scheduling": self._watch.stalled}
        if election is not None:
            live["leaderElection"] = lease_watchdog(
                renewed_at=lambda: election.renewed_at, clock=election.clock, lease_duration=election.lease_duration
            )
        ready = {"informer-sync": self._unsynced, "watches": self._stale}
        async with (
            serving(
                endpoints,
                live=live,
                ready=ready,
                metrics=self.metrics,
                access=self._access(),
                pages=pages_of(config, self.parts, self.client),
            ),
            self._extending(live, ready),
        ):
            yield

    @asynccontextmanager
    async def _extending(self, live: Mapping[str, Check], ready: Mapping[str, Check]) -> AsyncIterator[None]:
        """Answer kube-scheduler inside the block, if that is configured."""
        config, verbs = self.config, self.parts.verbs
        if verbs is None:
            yield
            return
        from neuron_scheduler.extender import server  # aiohttp's server takes 0.1 s to import

        address, number = address_and_port(config.extender_bind_address)
        port = server.Port(
            address=address,
            port=number,
            cert_file=config.extender_tls_cert_file,
            key_file=config.extender_tls_private_key_file,
            client_ca_file=config.extender_client_ca_file,
        )
        async with server.serving(
            port, verbs=verbs, health=health(live, ready), metrics=self.metrics, stopping=lambda: self._stopping
        ):
            yield

    def _access(self) -> Access | None:
        if not self.config.authorize_metrics:
            return None
        return Access(reviews=UserReviews(self.client), path="/metrics", clock=time.monotonic)

    def _unsynced(self) -> str | None:
        return unsynced(self.parts.informers)

    def _stale(self) -> str | None:
        stale = [i.described for i in self.parts.informers if i.stale]
        return f"neither listed nor watched for {STALE:g} s: {', '.join(stale)}" if stale else None

    async def _check_capacity_rights(self) -> None:
        """Say which rights are missing for capacity requests; pods are scheduled without them."""
        lacking = await access_review.missing(self.client, capacity_rights(self.config))
        if lacking:
            log.error(
                "The API server does not allow capacity requests; pods are scheduled all the same",
                missing=", ".join(lacking),
                hint="apply manifests/components/capacity-requests",
            )

    def _rights(self) -> tuple[access_review.Right, ...]:
        config = self.config
        needed = access_review.scheduling(informer.resource for informer in self.parts.informers)
        if self.parts.election is not None:
            needed += access_review.leading(config.leader_elect_resource_namespace, config.leader_elect_resource_name)
        reviews = config.authorize_metrics or config.answer_questions
        return needed + access_review.REVIEWING if reviews else needed
