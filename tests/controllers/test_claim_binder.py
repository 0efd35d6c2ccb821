"""What is written to claims is what was decided, or nothing."""

from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fold import put
from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.controllers.claim_binder import ClaimBinder
from neuron_scheduler.kube.writes.binder import Refused
from neuron_scheduler.model.devices import (
    NEURON_DRIVER,
    ClaimAllocation,
    ClaimReference,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, select_node
from neuron_scheduler.scheduling.cycle.trial import take_with_volumes
from tests.support.builders import node, pod

pytestmark = pytest.mark.anyio


def claim(name: str, count: int, **fields: Any) -> ResourceClaim:
    requests = (DeviceRequest("r", NEURON_DRIVER, count),)
    return ResourceClaim(f"uid-{name}", "default", name, requests=requests, **fields)


async def test_a_pod_whose_claims_mean_something_else_gets_no_devices() -> None:
    """Its shared claim has got devices since it was put into the queue: those of its own claim were not chosen."""
    cluster = Cluster(claims=Claims())
    assert cluster.claims is not None
    devices = tuple(Device(NEURON_DRIVER, b"%d" % n, f"d{n}", {f"{NEURON_DRIVER}/deviceId": n}, {}) for n in range(16))
    for each in (
        node("n"),
        ResourceSlice("u", "s", NEURON_DRIVER, "n", 1, 1, "n", devices),
        DeviceClass("k", NEURON_DRIVER, (f'device.driver == "{NEURON_DRIVER}"',)),
        claim("shared", 1),
        claim("own", 4),
    ):
        put(cluster, None, each)
    raw = pod("p", claims=(ClaimReference("a", "shared"), ClaimReference("b", "own")))
    stale = cluster.claims.put_pod(raw)
    allocated = ClaimAllocation((DeviceKey(NEURON_DRIVER, "n", "d0"),))
    put(cluster, None, claim("shared", 1, allocation=allocated, resource_version="2"))
    decision = select_node(cluster, stale, default_profile(stale.scheduler_name))
    assert isinstance(decision, Decision)
    taken = take_with_volumes(cluster, stale, decision)
    parts: dict[str, Any] = dict.fromkeys(("writer", "queue", "reporter", "clock"))
    binder = ClaimBinder(cluster=cluster, claims=cluster.claims, may_bind=lambda: True, **parts)
    outcome = await binder.prepare(taken.pod, taken.claims)
    assert isinstance(outcome, Refused)
    assert "meant something else" in outcome.message
