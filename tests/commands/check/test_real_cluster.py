"""
`check` against a real API server: before the installation, after it, with several sicknesses, and with few rights.

The objects are those of `manifests/`, applied with kubectl. There are no controllers, so a test writes the status that
the Deployment would have, and the Lease that a replica would hold.
"""

import datetime as dt
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio.to_thread
import pytest

from neuron_scheduler.commands.check.reader import SnapshotReader
from neuron_scheduler.commands.check.report import Report, report_on
from neuron_scheduler.commands.check.subjects.finding import NEEDS_ACTION, Finding, Severity
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from tests.control_plane.objects import bind, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object
from tests.control_plane.server import ADMIN, ControlPlane, User, run_control_plane
from tests.end_to_end.process import until
from tests.support.documented_commands import reader_shell, run_by

ROOT: Final = Path(__file__).parents[3]
pytestmark = pytest.mark.control_plane

KUBECTL: Final = Path(sys.executable).with_name("kubectl")
VIEWER: Final = User("viewer")
NOBODY: Final = User("nobody")
SYSTEM: Final = "namespaces/kube-system"
LEASES: Final = f"/apis/coordination.k8s.io/v1/{SYSTEM}/leases"
DEPLOYMENTS: Final = f"/apis/apps/v1/{SYSTEM}/deployments"
DAEMON_SETS: Final = f"/apis/apps/v1/{SYSTEM}/daemonsets"
BINDINGS: Final = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
POLICY_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
HOLDER: Final = "my-scheduler-6d5f9c7b8-x2x9k_393c7694"


def kubectl(kubeconfig: Path, *arguments: str) -> None:
    subprocess.run([KUBECTL, *arguments, f"--kubeconfig={kubeconfig}"], check=True, capture_output=True, cwd=ROOT)


def workload(kind: str, name: str, labels: dict[str, str], **container: Any) -> Object:
    """Return a Deployment or DaemonSet with one container."""
    template = {
        "metadata": {"labels": labels},
        "spec": {"serviceAccountName": container.pop("account"), "containers": [{"name": "main", **container}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


PLUGIN: Final = workload(
    "DaemonSet",
    "neuron-device-plugin-daemonset",
    {"name": "neuron-device-plugin-ds"},
    account="neuron-device-plugin",
    image="public.ecr.aws/neuron/neuron-device-plugin:2.26.26.0",
)


@asynccontextmanager
async def cluster() -> AsyncIterator[ControlPlane]:
    """Run an API server of our own with nodes and the device plugin: the policies affect the whole cluster."""
    async with run_control_plane(users=[VIEWER, NOBODY]) as plane:
        for name, instance_type in (("inf2-a", "inf2.24xlarge"), ("trn1-a", "trn1.32xlarge"), ("m5-a", "m5.large")):
            await create_node(plane.admin, node_manifest(name, instance_type))
        await plane.admin.post(DAEMON_SETS, PLUGIN)
        status = {"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 2, "numberMisscheduled": 0}
        await plane.admin.patch(f"{DAEMON_SETS}/neuron-device-plugin-daemonset/status", {"status": status})
        yield plane


@pytest.fixture(scope="module")
async def bare() -> AsyncIterator[ControlPlane]:
    """Run a cluster without the scheduler; no test changes it."""
    async with cluster() as plane:
        yield plane


@pytest.fixture(scope="module")
async def healthy() -> AsyncIterator[ControlPlane]:
    """Run a cluster with the scheduler; no test makes it sick."""
    async with cluster() as plane:
        await installed(plane)
        yield plane


@pytest.fixture
async def sick() -> AsyncIterator[ControlPlane]:
    """Run a cluster with the scheduler, for one test."""
    async with cluster() as plane:
        await installed(plane)
        yield plane


async def check(plane: ControlPlane, token: str = "") -> Report:
    """Check the cluster, by default as the administrator."""
    kubeconfig = plane.folder / "checking.kubeconfig"
    plane.kubeconfig(kubeconfig, token=token or ADMIN.token)
    connection = await auth.load(str(kubeconfig))
    async with Client(connection=connection) as client:
        return report_on(await SnapshotReader(client=client).read())


def findings(report: Report) -> dict[str, Finding]:
    return {finding.code: finding for _, found in report.sections for finding in found}


def acting(report: Report) -> set[str]:
    """Return the codes of the findings that need action."""
    return {code for code, finding in findings(report).items() if finding.severity in NEEDS_ACTION}


async def test_before_the_installation(bare: ControlPlane) -> None:
    """Nodes and the device plugin are there, nothing else: exit code 0."""
    report = await check(bare)
    found = findings(report)
    assert (report.exit_code, acting(report)) == (0, set())
    assert {"not-installed", "policies-not-installed", "account-not-installed", "no-neuron-pods"} <= found.keys()
    assert found["version"].message.startswith("Kubernetes v1.3")


async def test_without_rights(bare: ControlPlane) -> None:
    """A user without rights learns which are missing: exit code 2."""
    report = await check(bare, NOBODY.token)
    assert report.exit_code == 2
    missing = findings(report)["reader-lacks-rights"].objects
    for request in ("list nodes", "list pods", "list daemonsets.apps", "get leases.coordination.k8s.io"):
        assert request in missing
    assert not {f.severity for f in findings(report).values()} & {Severity.ERROR, Severity.WARNING}


async def installed(plane: ControlPlane) -> None:
    """Install the scheduler as documented, and make its Deployment and Lease look as if it ran."""
    kubeconfig = plane.kubeconfig(plane.folder / "admin.kubeconfig")
    for folder in ("manifests/lease-watch", "manifests/my-scheduler"):
        await anyio.to_thread.run_sync(kubectl, kubeconfig, "apply", "-k", folder)
    status = {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2}
    await plane.admin.patch(f"{DEPLOYMENTS}/my-scheduler/status", {"status": status})
    await renewed(plane, HOLDER)


async def renewed(plane: ControlPlane, holder: str, *, seconds_ago: float = 0) -> None:
    """Let somebody hold the Lease."""
    moment = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds_ago)
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 300, "renewTime": f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "my-scheduler"}}
    await plane.admin.request("DELETE", f"{LEASES}/my-scheduler")
    await plane.admin.post(LEASES, lease | {"spec": spec})


async def may(plane: ControlPlane, user: str, verb: str, resource: str) -> bool:
    """Return whether the API server's authorizer, which needs a moment for a change, allows something."""
    spec = {"user": user, "resourceAttributes": {"verb": verb, "resource": resource}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await plane.admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


async def test_after_the_installation(healthy: ControlPlane) -> None:
    """Everything is well: no finding needs action, and the rights are those of the manifests."""
    report = await check(healthy)
    assert (report.exit_code, acting(report)) == (0, set())
    assert {"deployment", "lease", "policies", "account-rights", "no-other-scheduler"} <= findings(report).keys()


async def test_the_documented_commands(healthy: ControlPlane, tmp_path: Path) -> None:
    """The commands of docs/check.md, on a healthy cluster."""
    kubeconfig = healthy.kubeconfig(tmp_path / "kubeconfig")
    (block,) = run_by("tests/commands/check/test_real_cluster.py::test_the_documented_commands")
    output = await reader_shell(tmp_path, kubeconfig).run(block)
    assert "Nothing needs action." in output
    assert '"exitCode": 0' in output


async def test_a_viewer(healthy: ControlPlane) -> None:
    """With what the ClusterRole `view` allows, much is checked and the rest is marked: exit code 1, no false alarm."""
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:aggregate-to-view"},
        "subjects": [{"kind": "User", "name": "viewer", "apiGroup": group}],
    }
    await healthy.admin.post(BINDINGS, binding)
    await until(lambda: may(healthy, "viewer", "list", "pods"))
    report = await check(healthy, VIEWER.token)
    found = findings(report)
    assert report.exit_code == 1
    assert {found[code].severity for code in acting(report)} == {Severity.UNCHECKED}
    assert {"nodes-unknown", "policies-unknown", "account-rights-unknown", "allocations-unknown"} <= acting(report)
    assert {"version", "deployment", "device-plugin"} <= found.keys()


async def test_sick_nodes_and_pods(sick: ControlPlane) -> None:
    """A node without the plugin, a faulty one, two that publish devices, one of them with counts; unknown ids."""
    api = sick.admin
    faulty = node_manifest("trn1-b")
    health = {"type": "NeuronHealth", "status": "True", "reason": "NeuronHasError_DMA_ERROR"}
    faulty["status"]["conditions"].append(health)
    for node in (*(node_manifest(name, neuron=0, neuroncore=0) for name in ("trn1-c", "trn1-d")), faulty):
        await create_node(api, node)
    for name in ("trn1-a", "trn1-d"):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "neuron.aws.com", "nodeName": name, "pool": pool, "devices": [{"name": "neuron-device-0"}]}
        published = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}}
        await api.post("/apis/resource.k8s.io/v1/resourceslices", published | {"spec": spec})
    stray = pod_manifest("stray", neuron=2, scheduler_name="default-scheduler")
    await bind(api, await create_pod(api, stray), "inf2-a")
    await create_pod(api, pod_manifest("typo", neuron=1, scheduler_name="my-schedular"))
    report = await check(sick)
    found = findings(report)
    assert report.exit_code == 1
    assert acting(report) == {
        "nodes-without-device-plugin",
        "unhealthy-nodes",
        "claims-off",
        "nodes-with-counts-and-claims",
        "allocations-unreadable",
        "no-scheduler-name",
        "unknown-scheduler-name",
    }
    assert found["nodes-without-device-plugin"].objects == ("trn1-c",)
    assert found["claims-off"].objects == ("trn1-a", "trn1-d")
    assert found["nodes-with-counts-and-claims"].objects == ("trn1-a",)
    assert found["unhealthy-nodes"].objects == ("trn1-b: NeuronHealth",)
    assert found["allocations-unreadable"].objects == ("default/stray on inf2-a: no annotation names its ids",)


async def test_sick_objects(sick: ControlPlane) -> None:
    """AWS's extension, missing rights, an edited policy, a binding that only audits, a Lease that nobody renews."""
    api, plane = sick.admin, sick
    labels = {"app": "neuron-scheduler", "component": "k8s-neuron-scheduler"}
    image = "public.ecr.aws/neuron/neuron-scheduler:2.30.0.0"
    aws = workload("Deployment", "k8s-neuron-scheduler", labels, account="k8s-neuron-scheduler", image=image)
    await api.post(DEPLOYMENTS, aws)
    await api.delete(f"{BINDINGS}/neuron-scheduler")
    bound = await api.get(f"{POLICY_BINDINGS}/neuron-scheduler-node-name")
    bound["spec"]["validationActions"] = ["Audit"]
    await api.put(f"{POLICY_BINDINGS}/neuron-scheduler-node-name", bound)
    names = await api.get(f"{POLICIES}/neuron-scheduler-name")
    names["spec"]["failurePolicy"] = "Ignore"
    await api.put(f"{POLICIES}/neuron-scheduler-name", names)
    await renewed(plane, HOLDER, seconds_ago=600)

    async def refused() -> bool:
        return not await may(plane, "system:serviceaccount:kube-system:neuron-scheduler", "list", "pods")

    await until(refused)
    report = await check(plane)
    found = findings(report)
    assert acting(report) >= {
        "extension-may-not-write",
        "account-lacks-rights",
        "policy-not-bound",
        "policy-stale",
        "lease-not-held",
    }
    assert "create pods/binding" in found["account-lacks-rights"].objects
    assert "its validationActions differ" in found["policy-not-bound"].message
    assert "failurePolicy" in found["policy-stale"].message
    (age,) = re.findall(r"renewed (\d+) s ago", found["lease-not-held"].message)
    assert int(age) >= 600  # the commands since then take their time
    await renewed(plane, "somebody-else_1")
    assert "lease-held-by-another" in acting(await check(plane))
