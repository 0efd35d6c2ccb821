"""The rights in `manifests/` are exactly those that the process uses, by the API server's own audit log."""

from pathlib import Path

import pytest

from neuron_scheduler.kube.reviews import Right
from tests.control_plane.audit import audited
from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, free_port
from tests.end_to_end.claims import (
    CLAIMS,
    VOLUMES,
    add_claim,
    add_classes,
    add_volume,
    clear_storage,
    selected_node,
    with_claims,
)
from tests.end_to_end.kube_scheduler import run_kube_scheduler
from tests.end_to_end.process import ACQUIRED, BOUND, run_scheduler, until
from tests.end_to_end.rights import covers, granted, is_review, needed, optional
from tests.end_to_end.workload import add_nodes, add_priority_classes, events_of, placed, refused, remove
from tests.faults.answers import CUT
from tests.faults.calls import binding_of
from tests.faults.proxy import Behaviour, Fault, run_proxy

BINDING = Right("create", "pods/binding")
FOLLOWING = Right("watch", "leases", "coordination.k8s.io", "kube-system", "my-scheduler")


async def test_the_manifest_has_the_rights_that_the_process_checks_at_its_start() -> None:
    """`manifests/base/rbac.yaml` and the list that is checked with SelfSubjectAccessReviews are the same."""
    assert granted() - optional() == set(needed())
    assert optional() <= granted()


@pytest.mark.main_job
async def test_the_process_uses_exactly_its_rights(
    plane: ControlPlane, account: Path, empty: RestClient, audit_log: Path
) -> None:
    """
    After a workload with every kind of write no request was refused or unforeseen, and no right is unused.

    The workload has: binding, refusal, volumes, a Binding whose answer was lost, preemption, waiting for the Lease.
    """
    begin = len(audited(audit_log))

    async def second_follows() -> bool:
        return any(covers(FOLLOWING, request) for request in audited(audit_log)[begin:])

    async with run_proxy(plane) as proxy, run_scheduler(account, f"--master={proxy.url}") as first:
        await first.line(ACQUIRED)
        await add_nodes(first, empty, trn1="trn1.32xlarge")
        lost = proxy.add(Fault(binding_of("one"), Behaviour(CUT)))
        await placed(empty, "one", neuron=1)
        assert (await lost.answered())[0] == 201
        await first.line(BOUND, 'pod="default/one"')
        await _waits_for_volumes(empty)
        await add_priority_classes(empty, urgent=1000)
        await create_pod(empty, pod_manifest("sixteen", neuron=16, priorityClassName="urgent"))
        await events_of(empty, "one", "Preempted")
        await create_pod(empty, pod_manifest("seven", neuron=7))
        await events_of(empty, "seven", "FailedScheduling")
        await refused(empty, "seven", saying="does not support")
        async with run_scheduler(account) as second:
            await until(second_follows)
            assert await first.stop() == 0
            await second.line(ACQUIRED)
            assert await second.stop() == 0
    rights, mine = granted(), audited(audit_log)[begin:]
    assert not [r["requestURI"] for r in mine if not (is_review(r) or any(covers(right, r) for right in rights))]
    assert not [str(right) for right in rights - optional() if not any(covers(right, r) for r in mine)], "never used"
    assert not [r["requestURI"] for r in mine if r["responseStatus"]["code"] == 403]


async def test_the_extender_needs_no_other_rights(
    plane: ControlPlane, account: Path, empty: RestClient, audit_log: Path
) -> None:
    """With kube-scheduler: filter, bind and preempt, and the Lease. The account is the same on both roads."""
    begin, port = len(audited(audit_log)), free_port()
    await create_node(empty, node_manifest("trn1", "trn1.2xlarge"))
    await add_priority_classes(empty, urgent=1000)
    address = f"--extender-bind-address=127.0.0.1:{port}"
    async with run_scheduler(account, address, command="extender") as process:
        await process.line(ACQUIRED)
        async with run_kube_scheduler(plane, f"http://127.0.0.1:{port}"):
            await placed(empty, "one", scheduler_name="default-scheduler", neuron=1)
            await events_of(empty, "one", "NeuronAllocated")
            asks = pod_manifest("urgent", scheduler_name="default-scheduler", neuron=1, priorityClassName="urgent")
            await create_pod(empty, asks)
            await events_of(empty, "one", "Preempted")
        assert await process.stop() == 0
    rights, mine = granted(), audited(audit_log)[begin:]
    assert any(covers(BINDING, request) for request in mine)
    assert not [r["requestURI"] for r in mine if not (is_review(r) or any(covers(right, r) for right in rights))]
    assert not [r["requestURI"] for r in mine if r["responseStatus"]["code"] == 403]


async def _waits_for_volumes(api: RestClient) -> None:
    """Give one pod an existing volume and another one a provisioned volume; no controller binds either."""
    await add_classes(api)
    await add_volume(api, "static")
    await api.patch(f"{VOLUMES}/static/status", {"status": {"phase": "Available"}})
    await add_claim(api, "static")
    await add_claim(api, "dynamic", "made")
    for name in ("static", "dynamic"):
        await create_pod(api, with_claims(name, name))
    await api.wait_for(f"{VOLUMES}/static", lambda volume: "claimRef" in volume["spec"])
    await api.wait_for(f"{CLAIMS}/dynamic", lambda volume: selected_node(volume) is not None)
    await remove(api, "static", "dynamic")
    await clear_storage(api)
