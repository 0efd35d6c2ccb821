"""
The composition root: builds everything, runs it in one task group, and has one way to stop.

    rights -> informers synced (ready) -> Lease -> pods listed anew -> schedule ... -> SIGTERM -> Bindings resolved
    -> Events written -> Lease released -> exit 0

Only this module sees the whole `Config`. Refuses to do any of the work itself.
"""

import gc
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import anyio
import attrs
from anyio.abc import TaskGroup

from neuron_scheduler import __version__, inventory, logs
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.config import Config
from neuron_scheduler.event_handlers import NodeHandler, PodHandler
from neuron_scheduler.herald import Herald
from neuron_scheduler.kube import auth, rights
from neuron_scheduler.kube.binder import Binder
from neuron_scheduler.kube.client import Client
from neuron_scheduler.kube.conditions import ConditionWriter
from neuron_scheduler.kube.events import EventRecorder
from neuron_scheduler.kube.informer import NODES, PODS, Informer
from neuron_scheduler.kube.lease import LeaseClient
from neuron_scheduler.leader import Leader
from neuron_scheduler.metrics import Metrics, State
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduler import Scheduler
from neuron_scheduler.scheduling.profile import default_profile
from neuron_scheduler.scheduling.queue import Place, SchedulingQueue
from neuron_scheduler.server import Endpoints, lease_watchdog, serving

log = logs.logger(__name__)

EVENTS_GRACE = 5.0
"""Seconds after the last Binding in which queued Events may still be written."""


async def run(config: Config) -> None:
    """
    Run the scheduler until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: it cannot run as it is set up.
        LeaseLostError: another replica may be leading.
    """
    connection = await auth.load(config.kubeconfig or None, config.master or None)
    log.info("Starting neuron-scheduler", version=__version__, server=connection.server, source=connection.source)
    metrics = Metrics(config.scheduler_name, config.leader_elect_resource_name, connection.server)
    async with Client(
        connection=connection,
        on_request=lambda code, method: metrics.requested(method, code),
        qps=config.kube_api_qps,
        burst=config.kube_api_burst,
    ) as client:
        await App.build(config, client, metrics).run()


@attrs.define(eq=False, kw_only=True)
class App:
    """Everything that runs, wired together."""

    config: Config
    client: Client
    metrics: Metrics
    cluster: Cluster
    queue: SchedulingQueue
    scheduler: Scheduler
    binder: Binder
    recorder: EventRecorder
    conditions: ConditionWriter
    pods: Informer[Pod]
    nodes: Informer[Node]
    leader: Leader | None
    _holding: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)

    @classmethod
    def build(cls, config: Config, client: Client, metrics: Metrics) -> Self:
        """Build all parts from the settings."""
        leader = _leader(config, client) if config.leader_elect else None
        may_bind = leader.may_bind if leader is not None else _always
        cluster = Cluster()
        queue = SchedulingQueue(
            initial_backoff=config.pod_initial_backoff_seconds,
            max_backoff=config.pod_max_backoff_seconds,
            max_unschedulable=config.pod_max_in_unschedulable_pods_duration,
            entered=metrics.queued,
        )
        binder = Binder(client=client, may_send=may_bind, timeout=config.bind_timeout)
        recorder = EventRecorder(client=client, controller=config.scheduler_name, on_dropped=metrics.event_dropped)
        conditions = ConditionWriter(client=client)
        herald = Herald(recorder=recorder, conditions=conditions, clock=time.monotonic, speaks=may_bind)
        scheduler = Scheduler(
            cluster=cluster,
            queue=queue,
            profile=default_profile(config.scheduler_name, trusting=config.unknown_allocations == "count-only"),
            binder=binder,
            herald=herald,
            metrics=metrics,
            clock=time.monotonic,
            wall_clock=time.time_ns,
            may_bind=may_bind,
            identity=leader.identity if leader is not None else "",
            bind_concurrency=config.bind_concurrency,
        )
        pod_handler = PodHandler(
            cluster=cluster,
            queue=queue,
            metrics=metrics,
            scheduler_name=config.scheduler_name,
            clock=time.monotonic,
            wake=scheduler.wake,
            gone=herald.forget,
            contested=herald.contested,
        )
        node_handler = NodeHandler(cluster=cluster, queue=queue, metrics=metrics, wake=scheduler.wake)
        return cls(
            config=config,
            client=client,
            metrics=metrics,
            cluster=cluster,
            queue=queue,
            scheduler=scheduler,
            binder=binder,
            recorder=recorder,
            conditions=conditions,
            pods=Informer(client=client, resource=PODS, handler=pod_handler),
            nodes=Informer(client=client, resource=NODES, handler=node_handler),
            leader=leader,
        )

    async def run(self) -> None:
        """Run until asked to stop; what fails ends everything."""
        self.metrics.ask(self._state)
        async with self._serving(), anyio.create_task_group() as services:
            services.start_soon(self.recorder.run)  # from the start: winding down waits for it to have written all
            async with anyio.create_task_group() as work:
                work.start_soon(self._stop_on_signal, work.cancel_scope)
                await self._schedule(services)
                work.cancel_scope.cancel()
            await self._wind_down()
            services.cancel_scope.cancel()

    async def _schedule(self, services: TaskGroup) -> None:
        """Go through the stages of a scheduler's life; each has its line in the log."""
        await rights.require(self.client, self._rights())
        services.start_soon(self.nodes.run)
        await self.nodes.synced.wait()
        services.start_soon(self.pods.run)
        await self.pods.synced.wait()
        gc.collect()
        gc.freeze()  # what the informers hold stays; looking through it again and again would stall the loop
        log.info("Caches are synced", nodes=self.cluster.node_count, pods=self.cluster.pod_count)
        services.start_soon(self.conditions.run)
        if self.leader is not None:
            await self.leader.acquire()
            services.start_soon(self._hold, self.leader)
            await self.pods.resync()  # what a predecessor bound last must be known before the first decision
        await self.scheduler.run()
        if not self.scheduler.stopping:
            await anyio.sleep_forever()  # the Lease is lost: `hold` is about to say so

    async def _hold(self, leader: Leader) -> None:
        with self._holding:
            await leader.hold()

    async def _stop_on_signal(self, work: anyio.CancelScope) -> None:
        """On the first signal let Bindings end; on the second, or when the grace is over, stop at once."""
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for signum in signals:
                log.info("Stopping", signal=signal.Signals(signum).name, bindings=self.binder.in_flight)
                if self.scheduler.running and not self.scheduler.stopping:
                    self.scheduler.stop()
                    work.deadline = anyio.current_time() + self.config.shutdown_grace_period
                else:
                    work.cancel()

    async def _wind_down(self) -> None:
        """Write what is still to be told, and give the Lease back if nothing of ours can land after that."""
        await self.recorder.drain(EVENTS_GRACE)
        if self.leader is None or not self.leader.leading:
            return
        if self.binder.resolved:
            self._holding.cancel()  # a renewal on its way would take the release for a loss
            await self.leader.release()
        else:
            log.warning("Lease is not released, it expires: a Binding is unresolved", bindings=self.binder.abandoned)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        config, leader = self.config, self.leader
        endpoints = Endpoints(
            address=config.bind_address,
            port=config.port,
            secure_port=config.secure_port if config.serves_tls else 0,
            cert_file=config.tls_cert_file,
            key_file=config.tls_private_key_file,
        )
        live = {}
        if leader is not None:
            live["leaderElection"] = lease_watchdog(
                renewed_at=lambda: leader.renewed_at, clock=leader.clock, lease_duration=leader.lease_duration
            )
        async with serving(endpoints, live=live, ready={"informer-sync": self._unsynced}, metrics=self.metrics):
            yield

    def _unsynced(self) -> str | None:
        missing = [i.resource.path for i in (self.nodes, self.pods) if not i.synced.is_set()]
        return f"not listed yet: {', '.join(missing)}" if missing else None

    def _rights(self) -> tuple[rights.Right, ...]:
        if self.leader is None:
            return rights.SCHEDULING
        config = self.config
        lease = rights.leading(config.leader_elect_resource_namespace, config.leader_elect_resource_name)
        return rights.SCHEDULING + lease

    def _state(self) -> State:
        cluster, queue = self.cluster, self.queue
        waiting = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
        return State(
            leader=self.leader.leading if self.leader is not None else True,
            pending_pods={place.value: queue.count(place) for place in waiting},
            unschedulable_pods=queue.refused_by_plugin(),
            cache_size={
                "nodes": cluster.node_count,
                "pods": cluster.pod_count,
                "assumed_pods": cluster.assumed_count,
            },
            unknown_holders=inventory.unknown_holders(cluster),
            conflicting_cores=inventory.contested_cores(cluster),
            binds_in_flight=self.binder.in_flight,
            binds_unknown=self.binder.unknown,
            free_devices=inventory.free_devices(cluster),
            largest_free_block=inventory.largest_free_blocks(cluster),
        )


def _leader(config: Config, client: Client) -> Leader:
    leases = LeaseClient(
        client=client,
        namespace=config.leader_elect_resource_namespace,
        name=config.leader_elect_resource_name,
    )
    return Leader(
        leases=leases,
        lease_duration=config.leader_elect_lease_duration,
        renew_deadline=config.leader_elect_renew_deadline,
        retry_period=config.leader_elect_retry_period,
    )


def _always() -> bool:
    return True
