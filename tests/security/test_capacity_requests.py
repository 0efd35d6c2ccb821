"""
The namespace in which machines are asked for: on a real API server, with what `components/capacity-requests` installs.

Only the scheduler may ask there, nothing runs there, and the rights end at the namespace.
"""

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from neuron_scheduler.capacity import placeholders as wire
from neuron_scheduler.kube.objects.pods import PODS as PODS_RESOURCE
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import CPU
from tests.capacity.asked import asked
from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import until
from tests.end_to_end.workload import PODS
from tests.security.conftest import example_policy
from tests.support.kustomize import customized, kubectl

NAMESPACE: Final = "neuron-scheduler-capacity"
THERE: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUOTA: Final = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas/machines"


def placeholder(name: str = "placeholder", **spec: Any) -> Object:
    """Return the placeholder for a trn1.32xlarge as the scheduler writes it, with some fields of its spec changed."""
    written = wire.manifest(name, asked(host={CPU: 1001}), "registry.example/pause")
    return written | {"spec": written["spec"] | spec}


@pytest.fixture(scope="module")
async def plane(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ControlPlane]:
    """Apply the component as a user does, also with those that refuse foreign scheduler names and answer questions."""
    folder = tmp_path_factory.mktemp("capacity")
    kubeconfig = installed.kubeconfig(folder / "kubeconfig")
    with_component = customized("my-scheduler", folder, "capacity-requests", "require-scheduler", "questions")
    await anyio.to_thread.run_sync(kubectl, "apply", "-k", with_component, "--kubeconfig", kubeconfig)

    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    await installed.admin.apply(account)  # as a controller does, which does not run here
    async with installed.client(await installed.token_for("kube-system", "neuron-scheduler")) as ours:

        async def accepted_and_refused() -> bool:
            accepted, _ = await ours.request("POST", THERE, placeholder(), dryRun="All")
            status, answer = await installed.admin.request("POST", THERE, placeholder(), dryRun="All")
            return accepted == 201 and status == 403 and "ValidatingAdmissionPolicy" in answer["message"]

        async def only_the_usual_rights() -> bool:
            return (await ours.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {}))[0] == 403

        await until(accepted_and_refused)
        yield installed
        components = Path("manifests/components")
        for added in (("-k", components / "capacity-requests" / "objects"), ("-f", components / "questions/rbac.yaml")):
            await anyio.to_thread.run_sync(kubectl, "delete", *added, "--wait=false", "--kubeconfig", kubeconfig)
        await anyio.to_thread.run_sync(kubectl, "apply", "-k", "manifests/my-scheduler", "--kubeconfig", kubeconfig)
        await until(only_the_usual_rights)
        namespace = await installed.admin.get(f"/api/v1/namespaces/{NAMESPACE}")
        ended = namespace | {"spec": {"finalizers": []}}  # as a controller says, which does not run here
        await installed.admin.put(f"/api/v1/namespaces/{NAMESPACE}/finalize", ended)


@pytest.fixture
async def ours(plane: ControlPlane) -> AsyncIterator[RestClient]:
    """Yield the client of the scheduler's account."""
    async with plane.client(await plane.token_for("kube-system", "neuron-scheduler")) as client:
        yield client


async def test_a_tenant_asks_for_no_machine(plane: ControlPlane, tenant: RestClient) -> None:
    """`edit` in a namespace of its own gives no right in this one."""
    status, answer = await tenant.request("POST", THERE, placeholder())
    assert status == 403
    assert 'User "tenant" cannot create resource "pods"' in answer["message"]
    assert (await tenant.request("GET", THERE))[0] == 403


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"schedulerName": "default-scheduler"}, "a pod of this namespace has the schedulerName"),
        ({"schedulerName": "my-scheduler"}, "a pod of this namespace has the schedulerName"),
        ({"hostNetwork": True}, 'violates PodSecurity "restricted:latest"'),
        ({"priorityClassName": "system-node-critical", "preemptionPolicy": "PreemptLowerPriority"}, ""),
    ],
    ids=["kube-scheduler's", "our queue's", "privileged", "urgent"],
)
async def test_a_stolen_token_runs_nothing(ours: RestClient, spec: Object, complaint: str) -> None:
    """
    The scheduler's own account creates placeholders there, and no pod that a scheduler would place.

    An urgent one is accepted: nobody places it, so it makes no pod leave.
    """
    status, answer = await ours.request("POST", THERE, placeholder(**spec), dryRun="All")
    assert (status, complaint in answer.get("message", "")) == (403 if complaint else 201, True)


async def test_nobody_else_creates_a_pod_there(plane: ControlPlane) -> None:
    """Not even an administrator, whose pods may be from a controller that somebody has started there."""
    status, answer = await plane.admin.request("POST", THERE, placeholder())
    assert status == 403
    assert "only the Neuron scheduler creates pods in this namespace" in answer["message"]
    named = placeholder(nodeName="n1")
    assert (await plane.admin.request("POST", THERE, named))[0] == 403


async def test_nobody_binds_a_placeholder(plane: ControlPlane, ours: RestClient) -> None:
    """Neither the scheduler nor kube-scheduler, by both ways to bind."""
    await ours.post(THERE, placeholder("never"))
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "never"}}
    binding["target"] = {"kind": "Node", "name": "n1"}
    for client, path in itertools.product(
        (plane.admin, ours), (f"{THERE}/never/binding", f"/api/v1/namespaces/{NAMESPACE}/bindings")
    ):
        status, answer = await client.request("POST", path, binding)
        assert status == 403
        by_rbac = client is ours and path.endswith("bindings")  # its role has no right to the old path
        assert by_rbac or "nothing runs in this namespace" in answer["message"]
    assert "nodeName" not in (await plane.admin.get(f"{THERE}/never"))["spec"]
    uid = (await plane.admin.get(f"{THERE}/never"))["metadata"]["uid"]
    await ours.delete(f"{THERE}/never", {"preconditions": {"uid": uid}})


async def test_the_rights_end_at_the_namespace(ours: RestClient) -> None:
    """The scheduler creates pods nowhere else."""
    status, answer = await ours.request("POST", PODS, pod_manifest("elsewhere"))
    assert status == 403
    assert 'cannot create resource "pods" in API group "" in the namespace "default"' in answer["message"]


async def test_a_scheduler_name_of_its_own_is_for_this_namespace_only(
    plane: ControlPlane, ours: RestClient, tenant: RestClient
) -> None:
    """`components/require-scheduler` still refuses it elsewhere: a tenant gets no way around it."""
    there, _ = await ours.request("POST", THERE, placeholder(), dryRun="All")
    assert there == 201
    elsewhere = pod_manifest("p", neuron=1, schedulerName=NAMESPACE)

    async def refused() -> bool:
        status, answer = await tenant.request("POST", PODS, elsewhere, dryRun="All")
        return status == 403 and "needs schedulerName: my-scheduler" in answer["message"]

    await until(refused)


async def test_a_quota_limits_machines_at_the_api_server(plane: ControlPlane, ours: RestClient) -> None:
    """The quota to which docs/security.md leads holds whatever the scheduler's settings say."""
    (quota,) = example_policy("quota-for-machines")
    await plane.admin.apply(quota, namespace=NAMESPACE)
    hard = quota["spec"]["hard"]
    # What the controller does, which does not run here.
    await plane.admin.patch(f"{QUOTA}/status", {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    too_many = str(int(hard["requests.aws.amazon.com/neuron"]) + 1)
    large = placeholder()
    amounts = {"aws.amazon.com/neuron": too_many}
    large["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}

    async def refused() -> bool:
        status, answer = await ours.request("POST", THERE, large, dryRun="All")
        return status == 403 and "exceeded quota: machines" in answer["message"]

    await until(refused)
    assert (await ours.request("POST", THERE, placeholder(), dryRun="All"))[0] == 201
    await plane.admin.delete(QUOTA)


@pytest.mark.parametrize("namespace", [NAMESPACE, "default", "kube-system"])
def test_a_placeholder_elsewhere_is_none(namespace: str) -> None:
    """A tenant may write every label and scheduler name: only the namespace, which no tenant writes, decides."""
    forged = placeholder()
    forged["metadata"] |= {"namespace": namespace, "uid": "uid-forged"}
    read = PODS_RESOURCE.decode(json.dumps(forged).encode()).value
    assert isinstance(read, Pod)
    assert wire.is_placeholder(read) is (namespace == NAMESPACE)
