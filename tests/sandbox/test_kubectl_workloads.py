"""A user's own kubectl applies our manifests, and drives Deployments and Jobs, on the embedded server."""

import copy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler.sandbox import fleet
from neuron_scheduler.sandbox.server import ApiServer
from tests.support.kubectl import Kubectl, lines

ROOT = Path(__file__).parents[2]
MANIFESTS = str(ROOT / "manifests")
APPLY = ("apply", "-f", "-")


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A kubectl whose cluster has controllers and a node without Neuron."""
    async with ApiServer(termination_limit=0, controllers=True, kube_scheduler=True).serving() as server:
        server.create(fleet.node("cpu-a", "m5.xlarge"))
        yield Kubectl(server.url, tmp_path, server)


def deployment(**spec: Any) -> dict[str, Any]:
    """A Deployment of two pods."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "example/web:1"}]}}
    whole = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template} | spec
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": whole}


def job(name: str, *command: str, policy: str = "Never", **spec: Any) -> dict[str, Any]:
    """A Job with one container."""
    container = {"name": "main", "image": "example/batch:1", "command": [*command]}
    template = {"spec": {"restartPolicy": policy, "containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


async def test_our_manifests_can_be_applied_and_deleted(kubectl: Kubectl) -> None:
    """In README's order, in both ways of applying, again without a change, and away."""
    assert "created" in await kubectl("apply", "-k", f"{MANIFESTS}/lease-watch")
    assert "deployment.apps/my-scheduler created" in await kubectl("apply", "-k", MANIFESTS)
    again = (await kubectl("apply", "-k", MANIFESTS)).splitlines()
    # kubectl always sends the selector of a PodDisruptionBudget, to a real API server too.
    assert [line for line in again if not line.endswith("unchanged")] == [
        "poddisruptionbudget.policy/neuron-scheduler configured"
    ]
    rollout = ("rollout", "status", "--namespace", "kube-system", "deployment/my-scheduler", "--timeout=60s")
    assert "successfully rolled out" in await kubectl(*rollout)
    applied = await kubectl("apply", "--server-side", "--force-conflicts", "-k", MANIFESTS)
    assert all(line.endswith("serverside-applied") for line in applied.splitlines())
    assert len((await kubectl("delete", "-k", MANIFESTS)).splitlines()) == len(again)
    assert await kubectl("get", "deployments,pods,replicasets", "-A", "-o", "name") == ""


async def test_apply_removes_what_is_left_out(kubectl: Kubectl) -> None:
    """Client side and server side: a field of the last configuration that the next one does not have is removed."""
    for way in ((), ("--server-side",)):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"x": "1", "z": "3"}}}
        await kubectl(*APPLY, *way, stdin=body | {"data": {"a": "1", "b": "2"}})
        await kubectl("label", "configmap", "c", "y=2")
        body["metadata"] = {"name": "c", "labels": {"z": "3"}}
        await kubectl(*APPLY, *way, stdin=body | {"data": {"a": "1"}})
        assert await kubectl("get", "configmap", "c", "-o", "jsonpath={.data}") == '{"a":"1"}'
        assert await kubectl("get", "configmap", "c", "-o", "jsonpath={.metadata.labels}") == '{"y":"2","z":"3"}'
        await kubectl("delete", "configmap", "c")


async def test_a_deployment_rolls_and_scales(kubectl: Kubectl) -> None:
    """Apply, rollout, scale, a new image, back again, restart, delete."""
    assert await kubectl(*APPLY, stdin=deployment()) == "deployment.apps/web created\n"
    status = ("rollout", "status", "deployment/web", "--timeout=60s")
    assert "successfully rolled out" in await kubectl(*status)
    assert lines(await kubectl("get", "deployments"))[1][:4] == ["web", "2/2", "2", "2"]
    assert await kubectl("scale", "deployment/web", "--replicas=3") == "deployment.apps/web scaled\n"
    await kubectl(*status)
    assert lines(await kubectl("get", "pods"))[3][1:3] == ["1/1", "Running"]
    assert "image updated" in await kubectl("set", "image", "deployment/web", "main=example/web:2")
    await kubectl(*status)
    assert (await kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}")) == " ".join(
        ["example/web:2"] * 3
    )
    assert lines(await kubectl("rollout", "history", "deployment/web"))[2:4] == [["1", "<none>"], ["2", "<none>"]]
    await kubectl("rollout", "undo", "deployment/web")
    assert "restarted" in await kubectl("rollout", "restart", "deployment/web")
    await kubectl(*status)
    described = await kubectl("describe", "deployment", "web")
    assert "3 desired | 3 updated | 3 total | 3 available" in described
    assert "Scaled up replica set" in described
    changed = copy.deepcopy(deployment())
    changed["spec"]["selector"]["matchLabels"]["tier"] = "x"
    changed["spec"]["template"]["metadata"]["labels"]["tier"] = "x"
    assert "field is immutable" in await kubectl(*APPLY, stdin=changed, code=1)
    assert "deleted" in await kubectl("delete", "deployment", "web", "--cascade=foreground")
    assert await kubectl("get", "all", "-o", "name") == ""


async def test_a_daemon_set_rolls(kubectl: Kubectl) -> None:
    """A pod on each node that it chooses, also on a new one, and `kubectl rollout status` for a new image."""
    whole = deployment() | {"kind": "DaemonSet"}
    del whole["spec"]["replicas"]
    whole["spec"]["template"]["spec"]["tolerations"] = [{"key": "x", "operator": "Exists"}]
    kubectl.server.create(fleet.node("tainted", "m5.xlarge", taints=[{"key": "x", "effect": "NoSchedule"}]))
    kubectl.server.create(fleet.node("closed", "m5.xlarge", taints=[{"key": "y", "effect": "NoSchedule"}]))
    await kubectl(*APPLY, stdin=whole)
    rolled = ("rollout", "status", "daemonset/web", "--timeout=60s")
    assert "successfully rolled out" in await kubectl(*rolled)
    assert lines(await kubectl("get", "daemonset"))[1][:6] == ["web", "2", "2", "2", "2", "2"]
    kubectl.server.create(fleet.node("cpu-b", "m5.xlarge"))
    await kubectl("wait", "--for=jsonpath={.status.numberAvailable}=3", "daemonset/web", "--timeout=60s")
    await kubectl("set", "image", "daemonset/web", "main=example/web:2")
    assert "successfully rolled out" in await kubectl(*rolled)
    images = await kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.containers[0].image}")
    assert images.split() == ["example/web:2"] * 3
    nodes = await kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
    assert sorted(nodes.split()) == ["cpu-a", "cpu-b", "tainted"]
    await kubectl("delete", "daemonset", "web")
    await kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")


async def test_jobs_end(kubectl: Kubectl) -> None:
    """A container ends after its sleep, with the code of its exit; `kubectl wait` sees the Job's condition."""
    await kubectl(*APPLY, stdin=job("good", "sleep", "0.1", completions=3, parallelism=2))
    wait = ("wait", "--timeout=60s")
    assert await kubectl(*wait, "--for=condition=complete", "job/good") == "job.batch/good condition met\n"
    assert lines(await kubectl("get", "job", "good"))[1][:3] == ["good", "Complete", "3/3"]
    assert {row[2] for row in lines(await kubectl("get", "pods"))[1:]} == {"Completed"}
    await kubectl(*APPLY, stdin=job("bad", "sh", "-c", "sleep 0.1; exit 3", backoffLimit=0))
    assert await kubectl(*wait, "--for=condition=failed", "job/bad") == "job.batch/bad condition met\n"
    assert "BackoffLimitExceeded" in await kubectl("describe", "job", "bad")
    (failed,) = lines(await kubectl("get", "pods", "-l", "job-name=bad"))[1:]
    assert failed[1:3] == ["0/1", "Error"]
    limited = job("late", "sleep", "infinity", activeDeadlineSeconds=1)
    await kubectl(*APPLY, stdin=limited)
    await kubectl(*wait, "--for=condition=failed", "job/late")
    assert "DeadlineExceeded" in await kubectl("get", "job", "late", "-o", "yaml")
    short = job("short", "sleep", "0.1", ttlSecondsAfterFinished=0)
    await kubectl(*APPLY, stdin=short)
    await kubectl(*wait, "--for=delete", "job/short")
    await kubectl("delete", "jobs", "--all")
    assert await kubectl("get", "pods", "-o", "name") == ""


async def test_annotations_say_when_a_pod_ends(kubectl: Kubectl) -> None:
    """For a container whose command says nothing."""
    whole = job("batch", "train")
    whole["spec"]["template"]["metadata"] = {"annotations": {"sandbox/run-seconds": "0.1", "sandbox/exit-code": "7"}}
    await kubectl(*APPLY, stdin=whole)
    path = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=7"
    await kubectl("wait", f"--for={path}", "pod", "-l", "job-name=batch", "--timeout=60s")


async def test_pods_of_the_default_scheduler_get_nodes(kubectl: Kubectl) -> None:
    """Where selector and taints allow it; a pod that asks for Neuron waits, and an event says why."""
    kubectl.server.create(fleet.node("trn1-a", "trn1.32xlarge"))
    kubectl.server.create(fleet.node("tainted", "m5.xlarge", taints=[{"key": "x", "effect": "NoSchedule"}]))
    plain = {"name": "main", "image": "example/app:1"}
    neuron = plain | {"resources": {"limits": {"aws.amazon.com/neuron": "1"}}}
    for name, container, spec in (
        ("plain", plain, {}),
        ("chosen", plain, {"nodeSelector": {"kubernetes.io/hostname": "trn1-a"}}),
        (
            "tolerating",
            plain,
            {
                "nodeSelector": {"kubernetes.io/hostname": "tainted"},
                "tolerations": [{"key": "x", "operator": "Exists"}],
            },
        ),
        ("nowhere", plain, {"nodeSelector": {"kubernetes.io/hostname": "tainted"}}),
        ("neuron", neuron, {}),
    ):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], **spec},
        }
        await kubectl(*APPLY, stdin=body)
    await kubectl("wait", "--for=condition=Ready", "pod/plain", "pod/chosen", "pod/tolerating", "--timeout=60s")
    path = "custom-columns=NAME:.metadata.name,NODE:.spec.nodeName"
    placed = {row[0]: row[1] for row in lines(await kubectl("get", "pods", "-o", path))[1:]}
    assert placed == {
        "plain": "cpu-a",
        "chosen": "trn1-a",
        "tolerating": "tainted",
        "nowhere": "<none>",
        "neuron": "<none>",
    }
    assert "set schedulerName: my-scheduler" in await kubectl("describe", "pod", "neuron")
    assert "0/3 nodes are available" in await kubectl("describe", "pod", "nowhere")
