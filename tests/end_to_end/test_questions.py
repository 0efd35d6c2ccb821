"""With --answer-questions users of a real API server ask the running scheduler, each with a token and rights."""

import json
from collections.abc import AsyncIterator, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import attrs
import pytest
import yaml

from tests.browser.chromium import Chromium
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end import rights
from tests.end_to_end.process import ROOT, SYNCED, SchedulerProcess, run_scheduler, until
from tests.end_to_end.test_secure_metrics import allowed
from tests.end_to_end.workload import add_nodes

NAME = "answering"  # an account of its own: another test compares the requests of neuron-scheduler with its rights
COMPONENT = ROOT / "manifests" / "components" / "questions"
TRN1 = "trn1.32xlarge"
NAMESPACES = ("mine", "others")
GETS_PODS = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "gets-pods"},
    "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
}


def for_us() -> Iterator[Object]:
    """Yield the rights of the manifests with the account of this test in their bindings."""
    for item in deepcopy([*rights.manifests(), *yaml.safe_load_all((COMPONENT / "rbac.yaml").read_text())]):
        if item["kind"].endswith("Binding"):
            item["metadata"]["name"] += f"-of-{NAME}"
            item["subjects"][0]["name"] = NAME
        yield item


async def bind(api: RestClient, name: str, role: str, namespace: str = "") -> None:
    """Bind a ServiceAccount of `users` to a ClusterRole, in one namespace or everywhere."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    await api.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": f"{name}-{role}", **({"namespace": namespace} if namespace else {})},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "users"}],
        }
    )


@attrs.frozen
class Client:
    """A user with a token, or without one."""

    scheduler: SchedulerProcess
    token: str | None

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        """Return status and JSON, None if there is no body."""
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        url = f"http://127.0.0.1:{self.scheduler.port}{path}"
        async with aiohttp.request("GET", url, headers=headers) as answer:
            text = await answer.read()
            return answer.status, json.loads(text) if text else None


@attrs.frozen
class Users:
    """Tokens: of an administrator, of a member of the namespace `mine`, and of somebody with no rights."""

    admin: str
    member: str
    stranger: str


@pytest.fixture
async def users(plane: ControlPlane, empty: RestClient) -> AsyncIterator[Users]:
    """Grant our own rights and theirs; at the end delete the pods."""
    for namespace in NAMESPACES:
        await empty.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    tokens = [await plane.token_for("users", name) for name in ("admin", "member", "stranger")]
    for item in for_us():
        await empty.apply(item)
    for name in ("admin", "member"):
        await bind(empty, name, "neuron-scheduler-reader")
    await empty.apply(GETS_PODS)  # no controller aggregates the ClusterRole `view` here
    await bind(empty, "admin", "gets-pods")
    await bind(empty, "member", "gets-pods", "mine")
    path, pods = {"verb": "get", "path": "/v1/fleet"}, {"verb": "get", "resource": "pods"}
    for account, asked in (
        ("users:member", {"nonResourceAttributes": path}),
        ("users:member", {"resourceAttributes": pods | {"namespace": "mine"}}),
        ("users:admin", {"resourceAttributes": pods}),
        (
            f"kube-system:{NAME}",
            {"resourceAttributes": {"verb": "create", "group": "authentication.k8s.io", "resource": "tokenreviews"}},
        ),
    ):
        await until(partial(allowed, empty, account, asked))
    yield Users(*tokens)
    for namespace in NAMESPACES:
        await empty.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)


@pytest.fixture
async def account_of_ours(plane: ControlPlane, tmp_path: Path) -> Path:
    """Return a kubeconfig of the account of this test."""
    return plane.kubeconfig(tmp_path / "kubeconfig", token=await plane.token_for("kube-system", NAME))


def neuron_pod(namespace: str, name: str, devices: int) -> Object:
    """Return a pod of ours."""
    limits = {"aws.amazon.com/neuron": str(devices)}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    spec = {"schedulerName": "my-scheduler", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def fill(api: RestClient, scheduler: SchedulerProcess) -> None:
    """Let a pod of each namespace run on the only node, and two wait."""
    await add_nodes(scheduler, api, n1=TRN1)
    for namespace, devices in zip(NAMESPACES, (8, 4), strict=True):  # the allocate fence delays equal ones
        await api.apply(neuron_pod(namespace, f"runs-{namespace}", devices))
        await scheduler.line("Successfully bound pod to node", f"{namespace}/runs-{namespace}")
    for namespace in NAMESPACES:
        await api.apply(neuron_pod(namespace, f"waits-{namespace}", 8))
        await scheduler.line("Unable to schedule pod", f"{namespace}/waits-{namespace}")


def holders(fleet: Any) -> set[tuple[str, str]]:
    """Return namespace and name of all holders."""
    return {(holder["namespace"], holder["name"]) for of in fleet["machines"] for holder in of["holders"]}


async def test_each_user_sees_what_that_user_may_see(users: Users, account_of_ours: Path, empty: RestClient) -> None:
    """No token 401; no right 403; a member of one namespace sees no name of another one, in no answer."""
    async with run_scheduler(account_of_ours, "--answer-questions", "--leader-elect=false") as scheduler:
        await scheduler.line(SYNCED)
        await fill(empty, scheduler)
        admin, member, stranger, nobody = (
            Client(scheduler, token) for token in (users.admin, users.member, users.stranger, None)
        )
        mine = ("/v1/why?namespace=mine&pod=waits-mine", "/v1/fit?namespace=mine&devices=8")
        for path in ("/v1/fleet", "/v1/waiting", "/v1/decisions", *mine):
            assert (await nobody.get(path))[0] == 401
            assert (await Client(scheduler, "garbage").get(path))[0] == 401
            status, refused = await stranger.get(path)
            assert (status, "neuron-scheduler-reader" in refused["message"]) == (403, True)
            status, answer = await member.get(path)
            assert (status, "others" in json.dumps(answer)) == (200, False), answer
            assert (await admin.get(path))[0] == 200
        assert holders((await admin.get("/v1/fleet"))[1]) == {("mine", "runs-mine"), ("others", "runs-others")}
        assert holders((await member.get("/v1/fleet?namespace=mine"))[1]) == {("mine", "runs-mine"), ("", "")}
        waiting = (await member.get("/v1/waiting?namespace=mine"))[1]["pods"]
        assert {(line["pod"]["name"], line["cause"], line["message"] != "") for line in waiting} == {
            ("waits-mine", "capacity", True),
            ("", "capacity", False),
        }
        why = (await member.get("/v1/why?namespace=mine&pod=waits-mine"))[1]
        assert (why["verdict"], why["cause"], why["nodes"]) == ("waits", "capacity", 1)
        pod = await empty.get("/api/v1/namespaces/mine/pods/waits-mine")
        assert why["message"] in pod["status"]["conditions"][0]["message"]
        others = "/v1/why?namespace=others&pod="
        assert [(await member.get(f"{others}{name}"))[0] for name in ("waits-others", "none")] == [403, 403]
        assert (await admin.get(f"{others}none"))[0] == 404
        assert (await member.get("/v1/fit?devices=8"))[1]["fitting"] == 0
        assert await scheduler.stop() == 0


async def test_the_page_in_a_browser(users: Users, account_of_ours: Path, empty: RestClient, browser: Chromium) -> None:
    """Each token shows its user's pods and no other's name; a pod that can be named says why it waits."""
    flags = ("--answer-questions", "--serve-page", "--leader-elect=false")
    async with run_scheduler(account_of_ours, *flags) as scheduler, browser.tab() as tab:
        await scheduler.line(SYNCED)
        await fill(empty, scheduler)
        await tab.open(f"http://127.0.0.1:{scheduler.port}/page")
        everything = "document.documentElement.outerHTML"
        for token, seen, hidden in (
            ("", (), NAMESPACES),
            (users.member, ("mine/runs-mine", "mine/waits-mine"), ("others",)),
            (users.stranger, (), NAMESPACES),
            (users.admin, ("mine/waits-mine", "others/runs-others", "others/waits-others"), ()),
        ):
            await tab.evaluate("document.querySelector('#forget').click()")
            await tab.evaluate(f"document.querySelector('#token').value = '{token}'")
            await tab.evaluate("document.querySelector('#namespace').value = 'mine'")
            await tab.evaluate("document.querySelector('#token-form').requestSubmit()")
            shown = "token in use" if token else "hidden"
            await tab.until(f"document.querySelector('#names').textContent === '{shown}'")
            await tab.until("document.querySelector('#waiting-count').textContent === '2'")
            await tab.evaluate("document.querySelector('.machine').open = true")
            await tab.until("document.querySelectorAll('.holders li').length === 2")
            text = await tab.evaluate(everything)
            assert [name for name in seen if name not in text] == []
            assert [name for name in hidden if name in text] == []
            if token == users.member:
                await tab.evaluate("document.querySelector('#waiting summary').click()")
                await tab.until("document.querySelector('#waiting .why h3')")
                assert "others" not in await tab.evaluate(everything)
        assert tab.complaints() == []
        assert await scheduler.stop() == 0
