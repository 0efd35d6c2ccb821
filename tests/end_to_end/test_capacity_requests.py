"""Asking an autoscaler for machines, on a real API server; the test adds the nodes that an autoscaler would add."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.control_plane.audit import audit_flags, audited
from tests.control_plane.objects import create_node, node_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.asking import CAPACITY, PLACEHOLDERS, asking, fragment, grant_capacity, none_left, placeholders
from tests.end_to_end.process import ACQUIRED
from tests.end_to_end.workload import PODS, clear, condition_of, events_of, ids_of, placed, refused

NO_KUBELET: Final = "--allocate-fence=false"
"""Nothing admits pods here, so no Binding may wait for the pod before it."""
ASKED: Final = "Asked the autoscaler for 1 trn1.32xlarge"


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of this API server's audit log of the ServiceAccount."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
async def plane(audit_log: Path) -> AsyncIterator[ControlPlane]:
    """Run an API server on which the ServiceAccount may also ask for machines."""
    async with run_control_plane(api_server_flags=audit_flags(audit_log)) as plane:
        await rights.grant(plane.admin)
        await grant_capacity(plane.admin)
        yield plane


@pytest.fixture(scope="module")
async def account(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of the ServiceAccount."""
    token = await plane.token_for("kube-system", "neuron-scheduler")
    return plane.kubeconfig(tmp_path_factory.mktemp("account") / "kubeconfig", token=token)


@pytest.fixture
async def empty(plane: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster without pods, nodes and placeholders."""
    await clear(plane.admin)
    await plane.admin.delete(PLACEHOLDERS, gracePeriodSeconds=0)
    return plane.admin


def deeds(log: Path) -> list[tuple[str, str]]:
    """Return what was deleted and bound, in the order of the answers: verb and namespace."""
    return [
        (request["verb"], request["objectRef"]["namespace"])
        for request in audited(log)
        if (request["verb"], request["objectRef"].get("subresource")) in (("delete", None), ("create", "binding"))
        and request["objectRef"].get("resource") == "pods"
        and request["responseStatus"]["code"] < 300
    ]


async def test_a_machine_is_asked_for_and_the_pod_gets_it(
    empty: RestClient, account: Path, tmp_path: Path, audit_log: Path
) -> None:
    """The placeholder asks for a whole machine; it is deleted before the pod is bound to the node that joins."""
    async with asking(account, tmp_path, NO_KUBELET) as scheduler:
        await scheduler.line(ACQUIRED)
        await fragment(empty, "a", "b")
        await refused(empty, "four", neuron=4)
        (placeholder,) = await placeholders(empty, 1)
        assert condition_of(placeholder)["reason"] == "Unschedulable"
        assert [condition["type"] for condition in placeholder["status"]["conditions"]] == ["PodScheduled"]
        limits = placeholder["spec"]["containers"][0]["resources"]["limits"]
        assert limits["aws.amazon.com/neuron"] == "16"
        assert placeholder["spec"]["priority"] == -10
        (event,) = await events_of(empty, "four", "NeuronCapacityRequested")
        assert event["note"] == f"{ASKED}: 24 Neuron devices free on 2 nodes, largest free block 1, pod needs 4"
        await refused(empty, "four", saying=f" {ASKED}.")
        metrics = await scheduler.until(
            lambda metrics: metrics['neuron_scheduler_capacity_requests{state="open"}'] == 1
        )
        assert metrics['neuron_scheduler_capacity_requests{state="refused"}'] == 0
        before = len(deeds(audit_log))
        await create_node(empty, node_manifest("c"))
        four = await placed(empty, "four")
        assert (four["spec"]["nodeName"], len(ids_of(four))) == ("c", 4)
        await none_left(empty)
        await scheduler.until(
            lambda metrics: metrics.get('neuron_scheduler_capacity_requests_ended_total{outcome="served"}') == 1
        )
        assert await scheduler.stop() == 0
    assert deeds(audit_log)[before:] == [
        ("delete", "neuron-scheduler-capacity"),
        ("create", "default"),
    ]


async def hinder(api: RestClient, how: str) -> None:
    """Make the API server refuse placeholders."""
    if how == "quota":
        spec = {"hard": {"pods": "0"}}
        item = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec}
        await api.post(f"{CAPACITY}/resourcequotas", item)
        status = {"status": {**spec, "used": {"pods": "0"}}}  # as the controller of quotas writes it
        await api.patch(f"{CAPACITY}/resourcequotas/none/status", status)
    elif how == "right":
        await api.delete("/apis/rbac.authorization.k8s.io/v1/namespaces/neuron-scheduler-capacity/rolebindings")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("right", 'cannot create resource "pods"'),
        ("quota", "exceeded quota: none"),
    ],
)
async def test_an_api_server_that_refuses(
    empty: RestClient, account: Path, tmp_path: Path, how: str, said: str
) -> None:
    """One line and one Event say what is wrong; the process starts, and other pods are scheduled."""
    try:
        await hinder(empty, how)
        async with asking(account, tmp_path, NO_KUBELET) as scheduler:
            await scheduler.line(ACQUIRED)
            await fragment(empty, "a")
            await refused(empty, "four", neuron=4)
            (event,) = await events_of(empty, "four", "NeuronCapacityRefused")
            assert said in event["note"]
            await scheduler.line("The API server refuses a request for a machine", "scheduling goes on")
            await scheduler.until(lambda metrics: metrics['neuron_scheduler_capacity_requests{state="refused"}'] == 1)
            await placed(empty, "one", neuron=1)
            missing = scheduler.lines_with("The API server does not allow capacity requests")
            assert len(missing) == (how == "right")
            await empty.wait_for(f"{PODS}/four", lambda pod: condition_of(pod)["message"].endswith("incoming pod."))
            assert await scheduler.stop() == 0
    finally:
        await empty.request("DELETE", f"{CAPACITY}/resourcequotas/none")
        await grant_capacity(empty)
