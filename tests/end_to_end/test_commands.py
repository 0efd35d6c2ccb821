"""
`why`, `fit` and `map` as users run them: against a real API server with few rights, against the running scheduler, from
a dump that kubectl has made, and as kubectl's plugin.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from tests.control_plane.binaries import require
from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ROOT, SYNCED, run_scheduler, until
from tests.end_to_end.test_questions import Users, account_of_ours, bind, fill, users  # noqa: F401 - fixtures
from tests.end_to_end.test_secure_metrics import allowed
from tests.support.kubectl import plugins_in

NODES_AND_PODS: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "lists-nodes-and-pods"},
    "rules": [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}],
}


async def run(*command: str | Path, kubeconfig: Path, path: Path | None = None, code: int = 0) -> str:
    """Run a program, check its exit code, and return its output or its one line of error."""
    environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(ROOT)}
    if path is not None:
        environment["PATH"] = f"{path}:{environment['PATH']}"
    done = await anyio.run_process(list(map(str, command)), check=False, env=environment, cwd=ROOT)
    out, error = done.stdout.decode(), done.stderr.decode()
    assert (done.returncode, "Traceback" in error) == (code, False), out + error
    return out if code != 2 else error


async def ask(*arguments: str, kubeconfig: Path, code: int = 0) -> str:
    return await run(sys.executable, "-m", "neuron_scheduler", *arguments, kubeconfig=kubeconfig, code=code)


def without_notes(text: str) -> Any:
    """Return a JSON answer without what one way of asking says of itself."""
    return {key: value for key, value in json.loads(text).items() if key != "notes"}


def job(folder: Path) -> str:
    """Write a Job of twenty pods with four devices each, and return the path."""
    spec = {**pod_manifest("asked", neuron=4)["spec"], "restartPolicy": "Never"}
    made = {"kind": "Job", "metadata": {"name": "asked"}, "spec": {"parallelism": 20, "template": {"spec": spec}}}
    path = folder / "job.json"
    path.write_text(json.dumps({"apiVersion": "batch/v1", **made}))
    return str(path)


def causes(text: str) -> list[str]:
    """Return what each waiting pod waits for."""
    return [line["cause"] for line in json.loads(text)["pods"]]


async def test_every_way_gives_the_same_answer(
    users: Users,  # noqa: F811 - a fixture
    account_of_ours: Path,  # noqa: F811 - likewise
    plane: ControlPlane,
    empty: RestClient,
    tmp_path: Path,
) -> None:
    """The API server's objects, kubectl's dump and the running scheduler: one explanation, one fit, one fleet."""
    admin = plane.kubeconfig(tmp_path / "admin")
    token = plane.kubeconfig(tmp_path / "token", token=users.admin)
    kubectl, plugins = require("kubectl"), plugins_in(tmp_path / "bin")
    async with run_scheduler(account_of_ours, "--answer-questions", "--leader-elect=false") as scheduler:
        await scheduler.line(SYNCED)
        await fill(empty, scheduler)
        dump = tmp_path / "dump.json"
        kinds = "nodes,pods,namespaces,services,replicasets,poddisruptionbudgets,persistentvolumeclaims"
        dump.write_text(await run(kubectl, "get", kinds, "-A", "-o", "json", kubeconfig=admin))
        port = f"--ask=http://127.0.0.1:{scheduler.port}"
        for question, code in (
            (["why", "mine/waits-mine"], 1),
            (["why", "-A"], 1),
            (["fit", "--devices=8", "--replicas=99"], 1),
            (["fit", "-f", job(tmp_path)], 1),
            (["map"], 0),
        ):
            live = await ask(*question, "-o", "json", kubeconfig=admin, code=code)
            offline = await ask(*question, "-o", "json", f"--from={dump}", kubeconfig=admin, code=code)
            asked = await ask(*question, "-o", "json", port, kubeconfig=token, code=code)
            plugin = await run(kubectl, "neuron", *question, "-o", "json", kubeconfig=admin, path=plugins, code=code)
            assert without_notes(live) == without_notes(offline) == without_notes(plugin)
            if question[-1] == "-A":  # the queue's message also has what preemption came to
                assert causes(asked) == causes(live) == ["capacity", "capacity"]
            elif question[0] == "fit":
                assert json.loads(asked)["total"] == json.loads(live)["total"]
            else:
                assert without_notes(asked) == without_notes(live)
        assert "mine/waits-mine" in await ask("why", "waits-mine", "-n", "mine", kubeconfig=admin, code=1)
        assert await scheduler.stop() == 0


async def test_readers_with_few_rights(
    users: Users,  # noqa: F811 - a fixture
    account_of_ours: Path,  # noqa: F811 - likewise
    plane: ControlPlane,
    empty: RestClient,
    tmp_path: Path,
) -> None:
    """Nodes and pods are enough; a tenant of one namespace learns what is missing, and asks the scheduler instead."""
    await empty.apply(NODES_AND_PODS)
    lister = await plane.token_for("users", "lister")
    await bind(empty, "lister", "lists-nodes-and-pods")
    await until(partial(allowed, empty, "users:lister", {"resourceAttributes": {"verb": "list", "resource": "nodes"}}))
    few, tenant, stranger = (
        plane.kubeconfig(tmp_path / name, token=token)
        for name, token in (("few", lister), ("tenant", users.member), ("stranger", users.stranger))
    )
    async with run_scheduler(account_of_ours, "--answer-questions", "--leader-elect=false") as scheduler:
        await scheduler.line(SYNCED)
        await fill(empty, scheduler)
        answer = json.loads(await ask("why", "mine/waits-mine", "-o", "json", kubeconfig=few, code=1))
        assert any(
            note.startswith("poddisruptionbudgets cannot be listed (the right is missing)") for note in answer["notes"]
        )
        error = await ask("why", "waits-mine", "-n", "mine", kubeconfig=tenant, code=2)
        assert "what is free depends on all nodes and pods, and you may not list " in error
        assert "ask the running scheduler with --ask" in error
        port = f"--ask=http://127.0.0.1:{scheduler.port}"
        text = await ask("why", "waits-mine", "-n", "mine", port, kubeconfig=tenant, code=1)
        assert "mine/waits-mine" in text
        assert "others" not in text
        for kubeconfig in (tenant, stranger):
            error = await ask("why", "others/waits-others", port, kubeconfig=kubeconfig, code=2)
            assert error.count("\n") == 1
        error = await ask("map", kubeconfig=stranger, code=2)
        assert "you may not list " in error
        assert await scheduler.stop() == 0
