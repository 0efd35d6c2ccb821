"""What the rights of `edit` in one namespace do not include, and what they do where that is not expected."""

from typing import Any

import pytest

from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import MERGE, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import until
from tests.end_to_end.workload import LEASE, PODS
from tests.security.conftest import EDIT, OTHER_PODS, TENANT, role_binding

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
SYSTEM = "/api/v1/namespaces/kube-system"
ACCOUNT = f"{SYSTEM}/serviceaccounts/neuron-scheduler"
TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
TARGET = {"target": {"kind": "Node", "name": "n1"}}
CLASS = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "mine"}, "value": 1}
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "any"}}
LEASE_OF_MINE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "my-scheduler"},
    "spec": {"holderIdentity": "tenant", "leaseDurationSeconds": 3600},
}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("POST", f"{PODS}/any/binding", TARGET, id="bind a pod"),
        pytest.param("POST", "/api/v1/namespaces/default/bindings", TARGET, id="bind a pod by the old path"),
        pytest.param("PATCH", f"{PODS}/any/status", {"status": {"phase": "Failed"}}, id="write a pod's status"),
        pytest.param("PATCH", LEASE, {"spec": {"holderIdentity": "tenant"}}, id="take the Lease"),
        pytest.param("DELETE", LEASE, None, id="delete the Lease"),
        pytest.param("POST", LEASE.rpartition("/")[0], LEASE_OF_MINE, id="create the Lease"),
        pytest.param("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", CLASS, id="make a priority class"),
        pytest.param("GET", "/api/v1/nodes", None, id="read nodes"),
        pytest.param("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}}, id="label a node"),
        pytest.param("DELETE", f"{POLICIES}/neuron-scheduler-allocations", None, id="delete a policy"),
        pytest.param("GET", OTHER_PODS, None, id="read another namespace's pods"),
        pytest.param("DELETE", f"{OTHER_PODS}/any", None, id="delete another namespace's pod"),
        pytest.param("POST", f"{OTHER_PODS}/any/eviction", EVICTION, id="evict another namespace's pod"),
        pytest.param("POST", f"{ACCOUNT}/token", TOKEN, id="get a token of the scheduler"),
        pytest.param("POST", f"{SYSTEM}/pods", pod_manifest("any"), id="run a pod as the scheduler"),
        pytest.param("PATCH", f"{SYSTEM}/configmaps/neuron-scheduler-config", {"data": {}}, id="change the settings"),
        pytest.param(
            "GET", f"{SYSTEM}/pods/any:10251/proxy/metrics", None, id="reach the ports through the API server"
        ),
        pytest.param("POST", f"{SYSTEM}/pods/any/portforward", None, id="forward the ports"),
    ],
)
async def test_what_edit_does_not_allow(
    installed: ControlPlane, tenant: RestClient, method: str, path: str, body: Any
) -> None:
    """RBAC refuses it, and says so; an administrator is not refused there by RBAC."""
    content_type = MERGE if method == "PATCH" else "application/json"
    status, answer = await tenant.request(method, path, body, content_type=content_type)
    assert status == 403
    assert f'User "{TENANT.name}" cannot' in answer["message"]
    assert answer["reason"] == "Forbidden"


async def test_a_lease_of_the_same_name_elsewhere(installed: ControlPlane, tenant: RestClient) -> None:
    """`edit` includes Leases of its own namespace; the fence looks at the one in kube-system only."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    await tenant.post(leases, LEASE_OF_MINE)
    fence = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/neuron-scheduler-leader"
    assert (await installed.admin.get(fence))["spec"]["paramRef"]["namespace"] == "kube-system"
    await tenant.delete(f"{leases}/my-scheduler")


async def test_an_event_in_the_scheduler_s_name(tenant: RestClient) -> None:
    """Whoever has `edit` may write any Event of its own namespace, whoever it says it is from."""
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "forged"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "my-scheduler",
        "reportingInstance": "my-scheduler-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "any"},
    }
    events = "/apis/events.k8s.io/v1/namespaces/{}/events"
    await tenant.post(events.format("default"), event)
    await tenant.delete(events.format("default") + "/forged")
    assert (await tenant.request("POST", events.format("other"), event))[0] == 403


async def test_edit_in_kube_system_is_the_scheduler(installed: ControlPlane, tenant: RestClient) -> None:
    """There it includes tokens of the ServiceAccount, so nobody but administrators may have it."""
    for role in EDIT:
        await installed.admin.apply(role_binding(TENANT, role, namespace="kube-system"))

    async def gets_a_token() -> bool:
        return (await tenant.request("POST", f"{ACCOUNT}/token", TOKEN))[0] == 201

    await until(gets_a_token)
    for role in EDIT:
        binding = role_binding(TENANT, role, namespace="kube-system")["metadata"]["name"]
        path = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings"
        await installed.admin.delete(f"{path}/{binding}")

    async def gets_none() -> bool:
        return not await gets_a_token()

    await until(gets_none)
