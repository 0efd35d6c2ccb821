"""A user's own kubectl works against the embedded server."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from neuron_scheduler.sandbox import fleet
from neuron_scheduler.sandbox.apiserver.logs import SIMULATED
from neuron_scheduler.sandbox.server import ApiServer
from tests.support.kubectl import KUBECTL, Kubectl, lines
from tests.support.patience import PATIENCE
from tests.support.sandbox_api import pod


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A kubectl whose cluster has one node."""
    async with ApiServer(termination_limit=0).serving() as server:
        server.create(fleet.node("trn1-a", "trn1.32xlarge"))
        yield Kubectl(server.url, tmp_path, server)


async def test_version_and_rights(kubectl: Kubectl) -> None:
    """It finds a server, which allows everything."""
    assert "Server Version: v1.37" in await kubectl("version")
    assert await kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert "pods" in await kubectl("api-resources")
    assert "KIND:       Pod" in await kubectl("explain", "pod")


async def test_apply_in_every_way(kubectl: Kubectl) -> None:
    """Client side, server side and dry: created, unchanged, configured."""
    body = pod("p", schedulerName="my-scheduler")
    apply = ("apply", "-f", "-")
    assert await kubectl(*apply, stdin=body) == "pod/p created\n"
    assert await kubectl(*apply, stdin=body) == "pod/p unchanged\n"
    body["metadata"]["labels"] = {"x": "1"}
    assert await kubectl(*apply, stdin=body) == "pod/p configured\n"
    assert await kubectl(*apply, "--server-side", stdin=body) == "pod/p serverside-applied\n"
    dry = await kubectl(*apply, "--dry-run=server", stdin=pod("q"))
    assert dry == "pod/q created (server dry run)\n"
    assert "invalid" in await kubectl(*apply, stdin=pod("q", containers=[]), code=1)
    body["spec"]["schedulerName"] = "other"
    assert "pod updates may not change fields other than" in await kubectl(*apply, stdin=body, code=1)
    assert await kubectl("create", "-f", "-", stdin=pod("r")) == "pod/r created\n"
    node = fleet.node("inf2-a", "inf2.48xlarge")
    assert await kubectl(*apply, stdin=node) == "node/inf2-a created\n"


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


async def test_changes(kubectl: Kubectl) -> None:
    """Label, annotate, patch, cordon, taint and drain."""
    await kubectl("apply", "-f", "-", stdin=pod("p"))
    assert await kubectl("label", "pod", "p", "x=1") == "pod/p labeled\n"
    assert await kubectl("annotate", "pod", "p", "x=1") == "pod/p annotated\n"
    assert "patched" in await kubectl("patch", "pod", "p", "--type=merge", "-p", '{"metadata":{"labels":{"y":"2"}}}')
    assert await kubectl("cordon", "trn1-a") == "node/trn1-a cordoned\n"
    assert lines(await kubectl("get", "nodes"))[1][1] == "Ready,SchedulingDisabled"
    assert await kubectl("uncordon", "trn1-a") == "node/trn1-a uncordoned\n"
    assert await kubectl("taint", "node", "trn1-a", "x=y:NoSchedule") == "node/trn1-a tainted\n"
    kubectl.server.registry.bind("default", "p", {"metadata": {"name": "p"}, "target": {"name": "trn1-a"}})
    assert "pod/p " in await kubectl("drain", "trn1-a", "--force")
    assert await kubectl("get", "pods") == "No resources found in default namespace.\n"


async def test_a_pod_runs_and_ends(kubectl: Kubectl) -> None:
    """A bound pod becomes Ready by itself, has no logs, and is gone when a waiting delete returns."""
    await kubectl("apply", "-f", "-", stdin=pod("p"))
    kubectl.server.registry.bind("default", "p", {"metadata": {"name": "p"}, "target": {"name": "trn1-a"}})
    assert await kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s") == "pod/p condition met\n"
    assert await kubectl("logs", "p") == f"{SIMULATED}\n"
    assert "deleted" in await kubectl("delete", "pod", "p", "--wait", "--timeout=60s")
    assert await kubectl("get", "pods") == "No resources found in default namespace.\n"


async def test_bodies_that_are_sent_as_protobuf(kubectl: Kubectl) -> None:
    """`create namespace` and others send only protobuf; for an unknown kind the refusal names the accepted types."""
    assert await kubectl("create", "namespace", "n") == "namespace/n created\n"
    assert "created" in await kubectl("create", "configmap", "c", "-n", "n", "--from-literal=a=b", "--from-literal=c=d")
    assert await kubectl("get", "configmap", "c", "-n", "n", "-o", "jsonpath={.data}") == '{"a":"b","c":"d"}'
    assert "created" in await kubectl("create", "secret", "generic", "s", "-n", "n", "--from-literal=a=b")
    assert await kubectl("get", "secret", "s", "-n", "n", "-o", "jsonpath={.data.a} {.type}") == "Yg== Opaque"
    refused = await kubectl("create", "priorityclass", "p", "--value=7", code=1)
    assert "accepted media types include: application/json" in refused
    assert "deleted" in await kubectl("delete", "namespace", "n")
