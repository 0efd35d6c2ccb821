"""The extender as one part of the process, built from what it shares with the others; imported only if it is on."""

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import attrs

from neuron_scheduler.controllers.foreign_nominations import ForeignNominations
from neuron_scheduler.controllers.leader_elector import LeaderElector
from neuron_scheduler.controllers.scheduling_loop import SchedulingLoop
from neuron_scheduler.extender.bind import Bind
from neuron_scheduler.extender.forward import Forward, own_url
from neuron_scheduler.extender.preempt import Preempt
from neuron_scheduler.extender.server import ExtenderServer
from neuron_scheduler.extender.verbs import Role, Verbs
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import extender_profile, preemption_profile
from neuron_scheduler.serving.certificate import Certificate
from neuron_scheduler.serving.connections import open_listening
from neuron_scheduler.serving.pages import WebPage
from neuron_scheduler.telemetry.metrics import Metrics


@attrs.frozen
class ExtenderPort:
    """Where the extender of this replica listens; without a `cert_file` there is no TLS."""

    address: str
    port: int
    cert_file: str
    key_file: str
    client_ca_file: str

    @property
    def url(self) -> str:
        return own_url(self.address, self.port, pod_ip=os.environ.get("POD_IP", ""), tls=bool(self.cert_file))


@attrs.frozen(eq=False)
class Extender:
    """Answers kube-scheduler, and keeps the space that it frees for its pods."""

    port: ExtenderPort
    verbs: Verbs
    foreign_nominations: ForeignNominations
    metrics: Metrics

    @asynccontextmanager
    async def serve(self, health: Mapping[str, WebPage], stopping: Callable[[], bool]) -> AsyncIterator[None]:
        port, certificate = self.port, None
        if port.cert_file:
            files = port.cert_file, port.key_file, port.client_ca_file
            certificate = Certificate(*files, flags="--extender-tls")
        server = ExtenderServer(verbs=self.verbs, health=health, metrics=self.metrics, is_stopping=stopping)
        connections = server.listen(open_listening(port.address, port.port, "--extender-bind-address"), certificate)
        try:
            yield
        finally:
            await connections.close()


def extender_of(
    port: ExtenderPort,
    loop: SchedulingLoop,
    election: LeaderElector | None,
    *,
    pod_by_key: Callable[[str], Pod | None],
    sync_problem: Callable[[], str | None],
) -> Extender:
    """Return the extender; `pod_by_key` and `sync_problem` are as in `Bind` and `Verbs`."""
    attempts = loop.attempts
    bind = Bind(
        cluster=loop.cluster,
        profile=extender_profile(),
        announcer=attempts.announcer,
        cycle=loop.binding_cycle,
        pod_by_key=pod_by_key,
        reporter=attempts.reporter,
        may_bind=loop.may_bind,
        own_names=attempts.profiles.keys(),
        clock=loop.clock,
        on_answer=attempts.metrics.count_extender_binding,
        errors=attempts.errors,
    )
    preempt = Preempt(
        cluster=loop.cluster,
        profile=preemption_profile(),
        beside=bind.profile,
        own_names=bind.own_names,
        is_abandoned=bind.is_abandoned,
        clock=loop.clock,
    )
    verbs = Verbs(
        cluster=loop.cluster,
        profile=bind.profile,
        bind=bind,
        preempt=preempt,
        forward=None if election is None else _forward(port, election),
        sync_problem=sync_problem,
        role=lambda: _role(bind, loop, election),
        clock=loop.clock,
        errors=attempts.errors,
    )
    foreign_nominations = ForeignNominations(
        cluster=loop.cluster, queue=loop.queue, profile=bind.profile, own_names=bind.own_names, clock=loop.clock
    )
    return Extender(port, verbs, foreign_nominations, attempts.metrics)


def _forward(port: ExtenderPort, election: LeaderElector) -> Forward:
    return Forward(
        leader_url=lambda: election.leader_address,
        identity=election.identity,
        cert_file=port.cert_file,
        key_file=port.key_file,
        client_ca_file=port.client_ca_file,
    )


def _role(bind: Bind, loop: SchedulingLoop, election: LeaderElector | None) -> Role:
    if bind.may_lead:
        return Role.LEADS
    if election is not None and not election.is_leading:
        return Role.FOLLOWS
    return Role.STOPS if loop.stopping else Role.TAKES_OVER
