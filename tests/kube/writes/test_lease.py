"""The Lease on the wire."""

import datetime as dt
import json
from typing import Any

import anyio
import pytest

from neuron_scheduler.kube.writes.lease import LeaseClient, Record, format_micro_time
from neuron_scheduler.model.annotations import EXTENDER_ADDRESS
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from tests.support.patience import PATIENCE
from tests.support.scripted_server import answer, event, scripted, watching

MOMENT = dt.datetime(2026, 11, 21, 8, 0, 0, 5, tzinfo=dt.UTC)
HELD = Record("me", 15, MOMENT, MOMENT, 3, "12")
ON_WIRE: dict[str, dict[str, Any]] = {
    "metadata": {"name": "my-scheduler", "namespace": "kube-system", "resourceVersion": "12"},
    "spec": {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-21T08:00:00.000005Z",
        "renewTime": "2026-11-21T08:00:00.000005Z",
        "leaseTransitions": 3,
    },
}
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


async def test_calls() -> None:
    """Reading, creating and replacing use the one Lease."""
    async with scripted(answer(ON_WIRE), answer(ON_WIRE, status=201), answer(ON_WIRE)) as (server, client):
        lease = LeaseClient(client=client)
        assert await lease.get(within=PATIENCE) == HELD
        assert await lease.create(HELD, within=PATIENCE) == HELD
        assert await lease.update(HELD, within=PATIENCE) == HELD

    assert [("GET", f"{PATH}/my-scheduler"), ("POST", PATH), ("PUT", f"{PATH}/my-scheduler")] == [
        (seen.method, seen.path) for seen in server.seen
    ]
    assert server.seen[2].json == {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **ON_WIRE}


@pytest.mark.parametrize("spec", [None, {}, {"holderIdentity": None, "renewTime": None}], ids=repr)
async def test_an_empty_lease(spec: object) -> None:
    """A Lease without a holder, or without anything, is free."""
    lease = {"metadata": {**ON_WIRE["metadata"], "resourceVersion": "7"}, "spec": spec}
    async with scripted(answer(lease)) as (_, client):
        assert Record("", 0, resource_version="7") == await LeaseClient(client=client).get(within=PATIENCE)


@pytest.mark.parametrize(
    "text",
    ["<html>", '{"metadata": {"name": "my-scheduler"}, "spec": {}}'],
    ids=["a page", "no version"],
)
async def test_a_lease_that_cannot_be_read(text: str) -> None:
    """Garbage or a proxy's answer is not a free Lease: it would be taken from its holder."""
    async with scripted(answer(text)) as (_, client):
        with pytest.raises(UnreachableError, match="cannot be read"):
            await LeaseClient(client=client).get(within=PATIENCE)


async def test_watching() -> None:
    """Every change is passed on until the callback returns True."""
    seen: list[Record | None] = []

    def look(record: Record | None) -> bool:
        seen.append(record)
        return record is None

    lines = event("MODIFIED", ON_WIRE), event("DELETED", ON_WIRE), event("ADDED", ON_WIRE)
    async with scripted(watching(*lines, then="silent")) as (server, client):
        with anyio.fail_after(PATIENCE):
            await LeaseClient(client=client).watch("12", look, seconds=60)

    assert seen == [HELD, None]
    assert server.seen[0].query == {
        "watch": "1",
        "fieldSelector": "metadata.name=my-scheduler",
        "resourceVersion": "12",
        "timeoutSeconds": "60",
    }


async def test_a_watch_of_an_expired_version() -> None:
    """The error is the server's, with its sentence."""
    expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version: 12 (4711)"}
    async with scripted(watching(event("ERROR", expired))) as (_, client):
        with pytest.raises(ApiError, match=r"410.*too old resource version: 12"):
            await LeaseClient(client=client).watch("12", bool, seconds=60)


async def test_a_lease_with_deep_managed_fields() -> None:
    """Deeply nested managedFields do not end an election, in an answer or in a watch."""
    deep = json.dumps(ON_WIRE).replace('"metadata": {', '"metadata": {"managedFields": [' + '{"f:a":' * 5000, 1)
    deep = deep.replace('{"f:a":' * 5000, '{"f:a":' * 5000 + "{}" + "}" * 5000 + "], ", 1)
    seen: list[Record | None] = []

    def look(record: Record | None) -> bool:
        seen.append(record)
        return False

    line = f'{{"type": "MODIFIED", "object": {deep}}}\n'.encode()
    async with scripted(answer(deep), watching(line, b'{"type": "MODIFIED", "object": 3}\n')) as (_, client):
        lease = LeaseClient(client=client)
        assert await lease.get(within=PATIENCE) == HELD
        with pytest.raises(UnreachableError):
            await lease.watch("1", look, seconds=60)

    assert seen == [HELD]


def test_times_are_written_in_utc() -> None:
    """Local time never gets a Z."""
    newyork = dt.timezone(dt.timedelta(hours=-5))

    assert format_micro_time(MOMENT.astimezone(newyork)) == "2026-11-21T08:00:00.000005Z"
    assert format_micro_time(MOMENT.replace(microsecond=0)) == "2026-11-21T08:00:00.000000Z"


async def test_what_others_have_written_into_the_metadata_is_kept() -> None:
    """A write replaces the object, and what it leaves out is gone."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "n", "uid": "u", "blockOwnerDeletion": True}
    metadata = {
        **ON_WIRE["metadata"],
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["example.com/audit"],
        "ownerReferences": [owner],
    }
    lease = {**ON_WIRE, "metadata": metadata}
    async with scripted(answer(lease), answer(lease)) as (server, client):
        record = await LeaseClient(client=client).get(within=PATIENCE)
        await LeaseClient(client=client).update(record, within=PATIENCE)

    assert server.seen[1].json["metadata"] == metadata


def test_the_address_of_the_holders_extender() -> None:
    """It is one annotation among others; without a holder it means nothing."""
    record = Record("me", 15, annotations={"c": "d"}).with_extender_address("http://10.0.0.7:12345")

    assert record.extender_address == "http://10.0.0.7:12345"
    assert record.annotations == {"c": "d", EXTENDER_ADDRESS: "http://10.0.0.7:12345"}
    assert record.with_extender_address("").annotations == {"c": "d"}
    assert Record("", 1, annotations=record.annotations).extender_address == ""
