"""What the admission policies promise: whom they bind, which ways to write a pod they cover, what the Lease decides."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.control_plane.objects import bind, create_pod, pod_manifest
from tests.control_plane.rest import APPLY, MERGE, STRATEGIC, Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import until
from tests.end_to_end.workload import LEASE, PODS
from tests.security.conftest import example_policy
from tests.support import kustomize

pytestmark = pytest.mark.control_plane  # the server, or kubectl without one

IDS = "AWS_NEURON_IDS"
HOLDER = {"neuron-scheduler/leader": "one"}
LEASE_OF_OURS = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "my-scheduler", "namespace": "kube-system"},
}


@pytest.mark.parametrize("road", ["my-scheduler", "default-scheduler"])
def test_they_fail_closed_and_exempt_nobody(road: str, tmp_path: Path) -> None:
    """An expression that fails refuses the request; no namespace, object or resource is left out by a selector."""
    items = kustomize.rendered(kustomize.customized(road, tmp_path)).values()
    policies = [item for item in items if item["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [item for item in items if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert len(policies) == len(bindings) == 4
    for policy in policies:
        assert policy["spec"]["failurePolicy"] == "Fail"
        assert policy["spec"]["matchConstraints"].keys() == {"resourceRules"}
    for binding in bindings:
        assert binding["spec"].keys() <= {"policyName", "paramRef", "validationActions"}
    denying = {b["metadata"]["name"] for b in bindings if b["spec"]["validationActions"] == ["Deny"]}
    assert denying == {f"neuron-scheduler-{name}" for name in ("allocations", "leader", "node-name")}


async def bound_with_allocation(plane: ControlPlane, name: str) -> Object:
    """Return a pod that our account has bound, with an allocation, as the holder of the Lease."""
    pod = await create_pod(plane.admin, pod_manifest(name, neuron=1, annotations={"own": "1"}))
    await plane.admin.apply(LEASE_OF_OURS | {"spec": {"holderIdentity": "one", "leaseDurationSeconds": 15}})
    async with plane.client(await plane.token_for("kube-system", "neuron-scheduler")) as ours:
        await until(answered(ours, name, HOLDER | {IDS: "0"}, 201))
    return await plane.admin.get(f"{PODS}/{pod['metadata']['name']}")


def answered(
    api: RestClient, name: str, annotations: dict[str, str], want: int, path: str = "", **parameters: str
) -> Callable[[], Awaitable[bool]]:
    """Return whether a Binding by this client is answered with a status; by default to the pod's own path."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": annotations},
        "target": {"kind": "Node", "name": "n1"},
    }

    async def send() -> bool:
        status, _ = await api.request("POST", path or f"{PODS}/{name}/binding", body, **parameters)
        return status == want

    return send


@pytest.fixture
async def empty(installed: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster without pods and without the Lease."""
    await installed.admin.delete(PODS, gracePeriodSeconds=0)
    await installed.admin.request("DELETE", LEASE)
    return installed.admin


@pytest.mark.usefixtures("empty")
@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        ("PUT", "", "application/json"),
        ("PATCH", "", MERGE),
        ("PATCH", "", STRATEGIC),
        ("PATCH", "", APPLY),
        ("PUT", "/status", "application/json"),
        ("PATCH", "/status", MERGE),
        ("PATCH", "/status", APPLY),
        ("PUT", "/resize", "application/json"),
        ("PATCH", "/resize", MERGE),
        ("PUT", "/ephemeralcontainers", "application/json"),
        ("PATCH", "/ephemeralcontainers", MERGE),
    ],
)
async def test_no_way_to_write_a_pod_changes_its_allocation(
    installed: ControlPlane, owner: RestClient, *, method: str, path: str, content_type: str
) -> None:
    """Each way is refused, or leaves the annotations alone; the user has the rights for all of them."""
    before = (await bound_with_allocation(installed, "p"))["metadata"]["annotations"]
    for changed in ({IDS: "1"}, {IDS: None}):
        pod = await installed.admin.get(f"{PODS}/p")
        body: Any = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": changed}}
        if method == "PUT":
            body = pod | {"metadata": pod["metadata"] | {"annotations": before | changed}}
            body["metadata"]["annotations"] = {k: v for k, v in body["metadata"]["annotations"].items() if v}
        parameters = {"fieldManager": "tenant", "force": "true"} if content_type == APPLY else {}
        status, answer = await owner.request(method, f"{PODS}/p{path}", body, content_type=content_type, **parameters)
        assert status in {200, 403}
        assert status == 200 or "ValidatingAdmissionPolicy 'neuron-scheduler-allocations'" in answer["message"]
        assert (await installed.admin.get(f"{PODS}/p"))["metadata"]["annotations"] == before


async def test_a_policy_against_deletions_by_force(
    installed: ControlPlane, empty: RestClient, owner: RestClient
) -> None:
    """The one to which docs/security.md leads: by no way is a pod gone at once while it may use devices."""
    policy, binding = example_policy("no-forced-deletion")
    for item in (policy, binding):
        await empty.apply(item)
    await create_pod(empty, pod_manifest("pending", neuron=1, schedulingGates=[{"name": "example.com/gate"}]))
    for pod in (
        pod_manifest("usual", neuron=1, scheduler_name="mine"),
        pod_manifest("hasty", neuron=1, scheduler_name="mine", terminationGracePeriodSeconds=0),
        pod_manifest("plain", scheduler_name="mine"),
    ):
        await bind(empty, await create_pod(empty, pod), "n1")

    async def deleted(path: str, want: int, **parameters: str) -> bool:
        status, answer = await owner.request("DELETE", path, **parameters, dryRun="All")
        assert status != 403 or "is not deleted by force" in answer["message"]
        return status == want

    await until(partial(deleted, f"{PODS}/usual", 403, gracePeriodSeconds="0"))
    assert await deleted(f"{PODS}/hasty", 403)
    assert await deleted(PODS, 403, gracePeriodSeconds="0")
    assert await deleted(f"{PODS}/usual", 200)
    assert await deleted(f"{PODS}/hasty", 200, gracePeriodSeconds="30")
    for name in ("plain", "pending"):
        assert await deleted(f"{PODS}/{name}", 200, gracePeriodSeconds="0")
    await empty.patch(f"{PODS}/usual/status", {"status": {"phase": "Succeeded"}})
    assert await deleted(f"{PODS}/usual", 200, gracePeriodSeconds="0")
    assert (await empty.request("DELETE", f"{PODS}/hasty", gracePeriodSeconds="0"))[0] == 200
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    await empty.delete(f"{policies}ybindings/{binding['metadata']['name']}")
    await empty.delete(f"{policies}ies/{policy['metadata']['name']}")
