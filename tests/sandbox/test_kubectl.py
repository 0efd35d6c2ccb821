"""A user's own kubectl works against the embedded server."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sandbox import fleet
from sandbox.apiserver.logs import SIMULATED
from sandbox.server import ApiServer
from tests.support.kubectl import KUBECTL, Kubectl, lines
from tests.support.kustomize import ROOT
from tests.support.patience import PATIENCE
from tests.support.sandbox_api import pod


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A kubectl whose cluster has one node, and controllers."""
    async with ApiServer(termination_limit=0, controllers=True).serving() as server:
        server.create(fleet.node("trn1-a", "trn1.32xlarge"))
        yield Kubectl(server.url, tmp_path, server)


async def test_version_and_rights(kubectl: Kubectl) -> None:
    """It finds a server, which allows everything."""
    assert "Server Version: v1.37" in await kubectl("version")
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "pods" in await kubectl("api-resources")


async def test_apply(kubectl: Kubectl) -> None:
    """Created, unchanged, configured; what the last configuration had, and the next has not, is removed."""
    body = pod("p", schedulerName="my-scheduler")
    apply = ("apply", "-f", "-")
    assert await kubectl(*apply, stdin=body) == "pod/p created\n"
    assert await kubectl(*apply, stdin=body) == "pod/p unchanged\n"
    body["metadata"]["labels"] = {"x": "1"}
    assert await kubectl(*apply, stdin=body) == "pod/p configured\n"
    body["metadata"]["labels"] = {"y": "2"}
    assert await kubectl(*apply, stdin=body) == "pod/p configured\n"
    assert await kubectl("get", "pod", "p", "-o", "jsonpath={.metadata.labels}") == '{"y":"2"}'
    assert "invalid" in await kubectl(*apply, stdin=pod("q", containers=[]), code=1)
    body["spec"]["schedulerName"] = "other"
    assert "pod updates may not change fields other than" in await kubectl(*apply, stdin=body, code=1)
    assert await kubectl("create", "-f", "-", stdin=pod("r")) == "pod/r created\n"
    node = fleet.node("inf2-a", "inf2.48xlarge")
    assert await kubectl(*apply, stdin=node) == "node/inf2-a created\n"


async def test_scale_lists_and_kinds_that_are_not_served(kubectl: Kubectl) -> None:
    """Kubectl says what it says of a real server."""
    await kubectl("apply", "-f", str(ROOT / "manifests" / "examples" / "deployment.yaml"))
    name = "deployment.apps/one-device-each-on-inf2"
    assert await kubectl("scale", "--replicas=3", name) == f"{name} scaled\n"
    assert await kubectl("scale", "--current-replicas=3", "--replicas=2", name) == f"{name} scaled\n"
    assert await kubectl("get", name, "-o", "jsonpath={.spec.replicas}") == "2"
    some = {"apiVersion": "v1", "kind": "List", "items": [pod("p")]}
    assert await kubectl("apply", "-f", "-", stdin=some) == "pod/p created\n"
    unknown = {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": "x"}}
    assert 'no matches for kind "Foo" in version "example.com/v1"' in await kubectl(
        "apply", "-f", "-", stdin=unknown, code=1
    )


async def test_get_prints_tables(kubectl: Kubectl) -> None:
    """Columns as a real cluster has them, wide ones on request, and all namespaces."""
    await kubectl("apply", "-f", "-", stdin=pod("p"))
    head, row = lines(await kubectl("get", "pods"))
    assert head == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert row[:3] == ["p", "0/1", "Pending"]
    wide = lines(await kubectl("get", "pods", "-o", "wide", "-A"))
    assert wide[0][:2] == ["NAMESPACE", "NAME"]
    assert "NODE" in wide[0]
    assert lines(await kubectl("get", "nodes"))[1][:2] == ["trn1-a", "Ready"]
    assert await kubectl("get", "pod", "p", "-o", "jsonpath={.status.phase}") == "Pending"
    assert 'pods "absent" not found' in await kubectl("get", "pod", "absent", code=1)
    assert "field label not supported" in await kubectl("get", "pods", "--field-selector=a=b", code=1)


async def test_get_watches(kubectl: Kubectl) -> None:
    """`get -w` prints each state of a pod, line by line."""
    await kubectl("apply", "-f", "-", stdin=pod("p"))
    command = [str(KUBECTL), f"--server={kubectl.url}", "get", "pods", "-w"]
    async with await anyio.open_process(command, env={"HOME": str(kubectl.home)}) as process:
        assert process.stdout is not None
        text = ""
        with anyio.fail_after(PATIENCE):
            while "Pending" not in text:
                text += (await process.stdout.receive()).decode()
            kubectl.server.registry.bind("default", "p", {"metadata": {"name": "p"}, "target": {"name": "trn1-a"}})
            while "Running" not in text:
                text += (await process.stdout.receive()).decode()
        process.terminate()
    assert lines(text)[0][0] == "NAME"


async def test_describe(kubectl: Kubectl) -> None:
    """A pod with its events, and a node with its pods."""
    await kubectl("apply", "-f", "-", stdin=pod("p"))
    stored = kubectl.server.store.get("pods", "default", "p")
    assert stored is not None
    about = {"kind": "Pod", "namespace": "default", "name": "p", "uid": stored["metadata"]["uid"]}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "p.1", "namespace": "default"},
        "eventTime": "2026-11-21T08:15:04.123456Z",
        "reportingController": "my-scheduler",
        "reportingInstance": "my-scheduler-host",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "Successfully assigned default/p to trn1-a",
        "regarding": about,
    }
    kubectl.server.create(event)
    described = await kubectl("describe", "pod", "p")
    assert "Successfully assigned default/p to trn1-a" in described
    assert "my-scheduler" in described
    assert "Scheduled" in await kubectl("get", "events")
    kubectl.server.registry.bind("default", "p", {"metadata": {"name": "p"}, "target": {"name": "trn1-a"}})
    node = await kubectl("describe", "node", "trn1-a")
    assert "Non-terminated Pods:          (1 in total)" in node
    assert "aws.amazon.com/neuron:      16" in node


async def test_a_pod_runs_and_ends(kubectl: Kubectl) -> None:
    """A bound pod becomes Ready by itself, has no logs, and is gone when a waiting delete returns."""
    await kubectl("apply", "-f", "-", stdin=pod("p"))
    kubectl.server.registry.bind("default", "p", {"metadata": {"name": "p"}, "target": {"name": "trn1-a"}})
    assert await kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s") == "pod/p condition met\n"
    assert await kubectl("logs", "p") == f"{SIMULATED}\n"
    assert "deleted" in await kubectl("delete", "pod", "p", "--wait", "--timeout=60s")
    assert await kubectl("get", "pods") == "No resources found in default namespace.\n"


@pytest.mark.parametrize(("code", "kind", "shown"), [(0, "Complete", "Completed"), (7, "Failed", "Error")])
async def test_a_job(kubectl: Kubectl, code: int, kind: str, shown: str) -> None:
    """Its pods run for as long as an annotation says; `kubectl wait` sees its end."""
    annotations = {"sandbox/run-seconds": "0.1", "sandbox/exit-code": str(code)}
    container = {"name": "main", "image": "example/batch:1"}
    pod_spec = {"restartPolicy": "Never", "nodeName": "trn1-a", "containers": [container]}
    spec = {"backoffLimit": 0, "template": {"metadata": {"annotations": annotations}, "spec": pod_spec}}
    whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec}
    await kubectl("apply", "-f", "-", stdin=whole)
    assert "condition met" in await kubectl("wait", f"--for=condition={kind}", "job/j", "--timeout=60s")
    assert lines(await kubectl("get", "job", "j"))[1][:3] == ["j", kind, "1/1" if kind == "Complete" else "0/1"]
    assert [row[2] for row in lines(await kubectl("get", "pods"))[1:]] == [shown]
    await kubectl("delete", "job", "j")
    await kubectl("wait", "--for=delete", "pod", "-l", "job-name=j", "--timeout=60s")
