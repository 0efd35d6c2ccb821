"""
A real API server with everything that `kubectl apply -k manifests/` installs, and users with few rights.

`default` is the namespace of the tenant that attacks, `other` the one of its victim. The tenant has the rights of the
ClusterRole `edit`: nothing aggregates them here, so the tenant has the roles that `edit` is aggregated from.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import anyio
import pytest
import yaml

from tests.control_plane.audit import audit_flags
from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, User, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.process import ACQUIRED, ROOT, SchedulerProcess, run_scheduler, until
from tests.end_to_end.workload import PODS, add_priority_classes, clear_below
from tests.support.kustomize import kubectl

TENANT: Final = User("tenant")
OWNER: Final = User("owner")
"""A tenant who has the rights of a small operator in its namespace as well: it writes pods' status, and binds pods."""
EDIT: Final = ("system:aggregate-to-edit", "system:aggregate-to-view")
OTHER_PODS: Final = "/api/v1/namespaces/other/pods"
_OPERATOR: Final = [
    {
        "apiGroups": [""],
        "resources": ["pods/status", "pods/resize", "pods/ephemeralcontainers"],
        "verbs": ["patch", "update"],
    },
    {"apiGroups": [""], "resources": ["pods/binding", "bindings"], "verbs": ["create"]},
]


def example_policy(name: str) -> list[Object]:
    """Return the objects of an example to which docs/security.md leads."""
    path = f"manifests/examples/policies/{name}.yaml"
    assert f"](../{path})" in (ROOT / "docs" / "security.md").read_text()
    return list(yaml.safe_load_all((ROOT / path).read_text()))


def role_binding(user: User, role: str, kind: str = "ClusterRole", namespace: str = "default") -> Object:
    """Return the object that gives a user a role in a namespace."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user.name}-{role}".replace(":", "-"), "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"kind": "User", "name": user.name, "apiGroup": group}],
    }


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the API server's audit log of the ServiceAccount, one JSON object a line."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
async def installed(audit_log: Path) -> AsyncIterator[ControlPlane]:
    """Run an API server on which the manifests are applied as a user does it, with the two tenants."""
    async with run_control_plane(users=[TENANT, OWNER], api_server_flags=audit_flags(audit_log)) as plane:
        kubeconfig = plane.kubeconfig(plane.folder / "kubeconfig")
        for folder in ("manifests/lease-watch", "manifests/my-scheduler"):
            await anyio.to_thread.run_sync(kubectl, "apply", "-k", folder, "--kubeconfig", kubeconfig)
        await rights.grant(plane.admin)
        await plane.admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}})
        await add_priority_classes(plane.admin, urgent=1000)
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "operator", "namespace": "default"},
            "rules": _OPERATOR,
        }
        await plane.admin.apply(role)
        for user in (TENANT, OWNER):
            for name in EDIT:
                await plane.admin.apply(role_binding(user, name))
        await plane.admin.apply(role_binding(OWNER, "operator", "Role"))
        async with plane.client(OWNER.token) as owner:

            async def may_and_may_not() -> bool:
                forged = pod_manifest("forged", annotations={"AWS_NEURON_IDS": "0"})
                plain = await owner.request("POST", PODS, pod_manifest("plain"), dryRun="All")
                status, answer = await owner.request("POST", PODS, forged, dryRun="All")
                bound, _ = await owner.request("POST", f"{PODS}/none/binding", {})
                refused = status == 403 and "ValidatingAdmissionPolicy" in answer["message"]
                return plain[0] == 201 and refused and bound != 403

            await until(may_and_may_not)
        yield plane


@pytest.fixture
async def tenant(installed: ControlPlane) -> AsyncIterator[RestClient]:
    """Yield the client of a user with the rights of `edit` in `default`."""
    async with installed.client(TENANT.token) as client:
        yield client


@pytest.fixture
async def owner(installed: ControlPlane) -> AsyncIterator[RestClient]:
    """Yield the client of a user who may also write pods' status and bind pods, in `default`."""
    async with installed.client(OWNER.token) as client:
        yield client


@pytest.fixture(scope="module")
async def account(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a kubeconfig of the scheduler's ServiceAccount."""
    token = await installed.token_for("kube-system", "neuron-scheduler")
    return installed.kubeconfig(tmp_path_factory.mktemp("account") / "kubeconfig", token=token)


@pytest.fixture(scope="module")
async def scheduler(installed: ControlPlane, account: Path) -> AsyncIterator[SchedulerProcess]:
    """Run one scheduler for the tests of a module, below the policies; it must end without an error."""
    async with run_scheduler(account, "-v=4") as scheduler:
        await scheduler.line(ACQUIRED)
        yield scheduler
        assert await scheduler.stop() == 0


@pytest.fixture
async def api(installed: ControlPlane, scheduler: SchedulerProcess) -> RestClient:
    """Return the administrator's client of an empty cluster; the running scheduler has seen that it is empty."""
    for pods in (PODS, OTHER_PODS):
        for pod in (await installed.admin.get(pods))["items"]:
            if pod["metadata"].get("finalizers"):
                await installed.admin.patch(f"{pods}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})
        await installed.admin.delete(pods, gracePeriodSeconds=0)
    await clear_below(scheduler, installed.admin)
    return installed.admin
