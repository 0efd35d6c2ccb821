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
from typing import Any, Self

import anyio
import attrs
from anyio.abc import TaskGroup

from neuron_scheduler import __version__, inventory, logs
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.config import Config
from neuron_scheduler.disruption_budgets import DisruptionBudgets
from neuron_scheduler.event_handlers import NodeHandler, PodHandler
from neuron_scheduler.herald import Herald
from neuron_scheduler.kube import auth, rights
from neuron_scheduler.kube.binder import Binder
from neuron_scheduler.kube.client import Client
from neuron_scheduler.kube.conditions import ConditionWriter
from neuron_scheduler.kube.disruption import BUDGETS
from neuron_scheduler.kube.events import EventRecorder
from neuron_scheduler.kube.evictor import Evictor
from neuron_scheduler.kube.informer import NODES, PODS, Informer
from neuron_scheduler.kube.lease import LeaseClient
from neuron_scheduler.kube.namespaces import NAMESPACES
from neuron_scheduler.kube.storage_codec import STORAGE
from neuron_scheduler.kube.volume_writer import VolumeWriter
from neuron_scheduler.kube.workloads import WORKLOADS
from neuron_scheduler.leader import Leader
from neuron_scheduler.metrics import Metrics, State
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.namespace_handler import NamespaceHandler
from neuron_scheduler.preemptor import Preemptor
from neuron_scheduler.scheduler import Scheduler
from neuron_scheduler.scheduling.profile import PREFERENCES, Profile, default_profile
from neuron_scheduler.scheduling.queue import Place, SchedulingQueue
from neuron_scheduler.server import Endpoints, lease_watchdog, serving
from neuron_scheduler.storage_handler import StorageHandler
from neuron_scheduler.volume_binder import VolumeBinder
from neuron_scheduler.workload_handlers import WorkloadHandler

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
    names = [profile.scheduler_name for profile in config.profiles]
    metrics = Metrics(names, config.leader_elect_resource_name, connection.server)
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
    others: tuple[Informer[Any], ...]
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
        profiles = _profiles(config)
        recorder = EventRecorder(client=client, controllers=tuple(profiles), on_dropped=metrics.event_dropped)
        conditions = ConditionWriter(client=client)
        herald = Herald(recorder=recorder, conditions=conditions, clock=time.monotonic, speaks=may_bind)
        volumes = VolumeBinder(cluster=cluster, writer=VolumeWriter(client=client, may_send=may_bind))
        budgets = DisruptionBudgets(metrics=metrics)
        preemptor = Preemptor(
            cluster=cluster,
            queue=queue,
            evictor=Evictor(client=client, may_send=may_bind),
            herald=herald,
            metrics=metrics,
            budgets=budgets.all,
            clock=time.monotonic,
            wake=lambda: scheduler.wake(),  # noqa: PLW0108 - there is no scheduler yet
        )
        scheduler = Scheduler(
            cluster=cluster,
            queue=queue,
            profiles=profiles,
            binder=binder,
            volumes=volumes,
            preemptor=preemptor,
            herald=herald,
            metrics=metrics,
            clock=time.monotonic,
            wall_clock=time.time_ns,
            may_bind=may_bind,
            identity=leader.identity if leader is not None else "",
            bind_concurrency=config.bind_concurrency,
        )

        def pod_gone(uid: str) -> None:
            herald.forget(uid)
            volumes.noticed(uid)

        pod_handler = PodHandler(
            cluster=cluster,
            queue=queue,
            metrics=metrics,
            scheduler_names=profiles.keys(),
            clock=time.monotonic,
            wake=scheduler.wake,
            gone=pod_gone,
            contested=herald.contested,
        )
        node_handler = NodeHandler(
            cluster=cluster, queue=queue, metrics=metrics, wake=scheduler.wake, gone=volumes.noticed
        )
        namespace_handler = NamespaceHandler(
            namespaces=cluster.namespaces, queue=queue, metrics=metrics, wake=scheduler.wake
        )
        storage_handler = StorageHandler(
            cluster=cluster, queue=queue, metrics=metrics, wake=scheduler.wake, noticed=volumes.noticed
        )
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
            others=(
                Informer(client=client, resource=BUDGETS, handler=budgets),
                Informer(client=client, resource=NAMESPACES, handler=namespace_handler),
                *_workloads(client, cluster, metrics),
                *_storage(client, storage_handler),
            ),
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
        for other in self.others:
            services.start_soon(other.run)
        await self.nodes.synced.wait()
        for other in self.others:
            await other.synced.wait()
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
        informers: tuple[Informer[Any], ...] = (self.nodes, self.pods, *self.others)
        missing = [i.resource.path for i in informers if not i.synced.is_set()]
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


def _workloads(client: Client, cluster: Cluster, metrics: Metrics) -> tuple[Informer[Any], ...]:
    handlers = [
        WorkloadHandler(workloads=cluster.workloads, metrics=metrics, resource=resource.path.rpartition("/")[2])
        for resource in WORKLOADS
    ]
    return tuple(
        Informer(client=client, resource=resource, handler=handler)
        for resource, handler in zip(WORKLOADS, handlers, strict=True)
    )


def _storage(client: Client, handler: StorageHandler) -> tuple[Informer[Any], ...]:
    return tuple(Informer(client=client, resource=resource, handler=handler) for resource in STORAGE)


def _profiles(config: Config) -> dict[str, Profile]:
    return {
        profile.scheduler_name: default_profile(
            profile.scheduler_name,
            trusting=profile.unknown_allocations == "count-only",
            preferences=PREFERENCES if profile.preferences is None else profile.preferences,
        )
        for profile in config.profiles
    }


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
