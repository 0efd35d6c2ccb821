"""
The rights of the scheduler's account, as the API server's authorizer sees them: all that is granted, and each needed.

`tests/end_to_end/test_rights.py` has the other half: a run that uses every right, by the API server's audit log.
"""

from collections.abc import Mapping
from pathlib import Path

import aiohttp
import anyio
import pytest
import yaml

from neuron_scheduler.kube.http.auth import load
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.reviews import REVIEWING, Right, require
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.control_plane.audit import audited
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, ROOT, run_scheduler, until
from tests.end_to_end.rights import covers, granted, is_review, needed
from tests.support import kustomize

pytestmark = pytest.mark.control_plane  # the server, or kubectl without one

GROUP = "rbac.authorization.k8s.io"
DELEGATOR = "system:auth-delegator"
COMPONENTS = ("questions", "secure-metrics")
OUR_SUBJECT = {"kind": "ServiceAccount", "name": "neuron-scheduler", "namespace": "kube-system"}


async def rules_of(client: RestClient, namespace: str) -> set[Right]:
    """Return all that the authorizer allows the sender in a namespace, without what is not about resources."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    status = (await client.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review))["status"]
    assert not status["incomplete"]
    return {
        Right(verb, resource, group, "", name)
        for rule in status["resourceRules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for group in rule["apiGroups"]
        for name in rule.get("resourceNames", [""])
    }


def anywhere(rights: set[Right], namespace: str) -> set[Right]:
    """Return those of the rights that count in a namespace, in the form of `rules_of`."""
    return {
        Right(right.verb, right.resource, right.group, "", right.name)
        for right in rights
        if right.namespace in ("", namespace)
    }


@pytest.mark.parametrize("namespace", ["kube-system", "default"])
async def test_nothing_else_is_granted(installed: ControlPlane, namespace: str) -> None:
    """The authorizer's list for the account has the manifest's rights, and what every account has."""
    tokens = [await installed.token_for("kube-system", name) for name in ("neuron-scheduler", "without-rights")]
    async with installed.client(tokens[0]) as ours, installed.client(tokens[1]) as anybody:
        extra = await rules_of(ours, namespace) - await rules_of(anybody, namespace)
    assert extra == anywhere(granted(), namespace)


async def lacking(plane: ControlPlane, missing: Right, user: str) -> None:
    """Give a user every right of the manifest but one."""
    kept = {place: [r for r in granted() - {missing} if r.namespace == place] for place in ("", "kube-system")}
    for place, rights in kept.items():
        metadata = {"name": user} | ({"namespace": place} if place else {})
        kind = "Role" if place else "ClusterRole"
        rules = [
            {"apiGroups": [r.group], "resources": [r.resource], "verbs": [r.verb]}
            | ({"resourceNames": [r.name]} if r.name else {})
            for r in rights
        ]
        await plane.admin.apply({"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "rules": rules})
        await plane.admin.apply(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": GROUP, "kind": kind, "name": user},
                "subjects": [{"kind": "User", "name": user, "apiGroup": GROUP}],
            }
        )


async def test_without_any_one_of_them_the_process_does_not_start(installed: ControlPlane, tmp_path: Path) -> None:
    """For each right: everything else is allowed, and the check at the start names this one, with what to do."""
    said: dict[Right, str] = {}

    async def start(missing: Right, user: str) -> None:
        await lacking(installed, missing, user)
        config = yaml.safe_load(installed.kubeconfig(tmp_path / user).read_text())
        config["users"][0]["user"]["as"] = user
        (tmp_path / user).write_text(yaml.safe_dump(config))
        async with Client(connection=await load(str(tmp_path / user))) as client:
            with pytest.raises(ConfigurationError) as error:
                await require(client, needed())
        said[missing] = str(error.value)

    async with anyio.create_task_group() as tasks:
        for number, missing in enumerate(needed()):
            tasks.start_soon(start, missing, f"lacking-{number}")
    assert said == {
        missing: (
            f"the API server does not allow this process to {missing}; apply manifests/base/rbac.yaml or the chart,"
            " and run under its ServiceAccount"
        )
        for missing in needed()
    }


async def test_the_optional_components_add_two_reviews(installed: ControlPlane, account: Path, audit_log: Path) -> None:
    """`questions` and `secure-metrics` bind a role of Kubernetes' own; both of its rights are used, and no other."""
    token = await installed.token_for("kube-system", "neuron-scheduler")
    for component in COMPONENTS:
        path = ROOT / "manifests/components" / component / "rbac.yaml"
        for item in yaml.safe_load_all(path.read_text()):
            await installed.admin.apply(item)
    async with installed.client(token) as ours:

        async def delegates() -> bool:
            return set(REVIEWING) <= await rules_of(ours, "default")

        await until(delegates)
        added = await rules_of(ours, "default") - anywhere(granted(), "default")
    async with installed.client(await installed.token_for("kube-system", "without-rights")) as anybody:
        assert added - await rules_of(anybody, "default") == set(REVIEWING)
    begin = len(audited(audit_log))
    reader = {"Authorization": f"Bearer {await installed.token_for('default', 'reader')}"}
    async with run_scheduler(account, "--answer-questions") as process:
        await process.line(ACQUIRED)
        async with aiohttp.request("GET", f"http://127.0.0.1:{process.port}/v1/fleet", headers=reader) as answer:
            assert answer.status == 403
        assert await process.stop() == 0
    asked = [request for request in audited(audit_log)[begin:] if not is_review(request)]
    for right in REVIEWING:
        assert any(covers(right, request) for request in asked), right
    known = {*granted(), *REVIEWING}
    assert [r["requestURI"] for r in asked if not any(covers(right, r) for right in known)] == []
    for component in ("questions", "auth-delegator"):
        await installed.admin.delete(f"/apis/{GROUP}/v1/clusterrolebindings/neuron-scheduler-{component}")


# -- without a cluster -------------------------------------------------------------------------------------------------


def roles(items: Mapping[str, Object]) -> tuple[set[str], set[Right]]:
    """Return the names of all roles that are bound to our account, and the rights of those that are among the items."""
    names, rights = set(), set()
    for item in items.values():
        if not item["kind"].endswith("Binding") or OUR_SUBJECT not in item.get("subjects", []):
            continue
        assert item["subjects"] == [OUR_SUBJECT]
        reference = item["roleRef"]
        names.add(reference["name"])
        role = items.get(f"{reference['kind']}/{reference['name']}", {"rules": [], "metadata": {}})
        rights |= {
            Right(verb, resource, group, role["metadata"].get("namespace", ""), name)
            for rule in role["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
            for group in rule["apiGroups"]
            for name in rule.get("resourceNames", [""])
        }
    return names, rights


@pytest.mark.parametrize(
    ("road", "components"),
    [
        (road, components)
        for road in ("my-scheduler", "default-scheduler")
        for components in ((), ("questions",), ("secure-metrics",), ("questions", "secure-metrics"))
        if road == "my-scheduler" or "questions" not in components  # the component is for the Deployment my-scheduler
    ],
)
def test_every_way_to_install_grants_the_same(road: str, components: tuple[str, ...], tmp_path: Path) -> None:
    """On both roads: these rights, and the two reviews where a component needs them; the chart has the same objects."""
    names, rights = roles(kustomize.rendered(kustomize.customized(road, tmp_path, *components)))
    assert names == {"neuron-scheduler"} | ({DELEGATOR} if components else set())
    assert rights == granted()
