"""
Builds the parts that share the Lease: the election, and what passes requests on to the replica that holds it.

The election's thread has a client of its own, so that a busy event loop loses no Lease. Does not run it: `app` does.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from neuron_scheduler.controllers.election_thread import ElectionThread
from neuron_scheduler.extender.forward import Forward, own_url
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.writes.lease import LeaseClient
from neuron_scheduler.settings.config import Config
from neuron_scheduler.settings.extender_port import address_and_port
from neuron_scheduler.telemetry.metrics import Metrics


def election_of(config: Config, metrics: Metrics) -> ElectionThread:
    """Return the candidate of this process."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[LeaseClient]:
        connection = await auth.load(config.kubeconfig or None, config.master or None)
        async with Client(
            connection=connection,
            on_request=lambda code, method: metrics.requested(method, code),
            on_answer=metrics.request_took,
        ) as client:
            yield leases_of(config, client)

    return ElectionThread(
        connect=connect,
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


def forward_of(config: Config, election: ElectionThread) -> Forward:
    """Return what passes requests of kube-scheduler's on to the leader."""
    return Forward(
        leader=lambda: election.leader_address,
        own=election.extender_address,
        identity=election.identity,
        cert_file=config.extender_tls_cert_file,
        key_file=config.extender_tls_private_key_file,
        client_ca_file=config.extender_client_ca_file,
    )


def leases_of(config: Config, client: Client) -> LeaseClient:
    """Return the Lease of the settings."""
    return LeaseClient(
        client=client,
        namespace=config.leader_elect_resource_namespace,
        name=config.leader_elect_resource_name,
    )
