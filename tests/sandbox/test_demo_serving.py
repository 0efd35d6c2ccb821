"""The laptop road: `demo --serve` has room, takes README's and AWS's commands, and its scheduler is a Deployment."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from neuron_scheduler.sandbox.demo import installation
from tests.control_plane.binaries import require
from tests.support.demo import ROOT, Served, read_until, served
from tests.support.kubectl import KUBECTL, Kubectl, lines
from tests.support.patience import PATIENCE

EXAMPLES = ROOT / "manifests" / "examples"
IN_SYSTEM = ("--namespace", "kube-system")
SCHEDULER = (*IN_SYSTEM, "deployment/my-scheduler")
OURS = "app.kubernetes.io/name=neuron-scheduler"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
BOUND = '"Successfully bound pod to node" pod="default/'


@pytest.fixture(params=["newest", pytest.param("of the cluster's version", marks=pytest.mark.control_plane)])
async def demo(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A demo that serves, with kubectl from the package index and with the one that the control plane's build makes."""
    program = KUBECTL if request.param == "newest" else require("kubectl")
    async with served(tmp_path, program) as running:
        yield running


async def ids(kubectl: Kubectl, pod: str) -> str:
    """Return the ids in a pod's annotation."""
    return await kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.annotations.AWS_NEURON_IDS}")


async def leader(kubectl: Kubectl) -> str:
    """Return the pod that holds the Lease; empty if none does."""
    holder = await kubectl("get", "lease", "my-scheduler", *IN_SYSTEM, "-o", "jsonpath={.spec.holderIdentity}")
    return holder.partition("_")[0]


async def test_every_example_runs(demo: Served) -> None:
    """There is room for all of them at once, pods, Deployment and Job; the picture shows them; a deletion frees."""
    kubectl = demo.kubectl
    assert [row[0] for row in lines(await kubectl("get", "pods"))[1:]] == ["seven"]
    assert {row[3] for row in lines(await kubectl("get", "events"))[1:]} == {"pod/seven"}
    assert "does not support requests for device: 7" in await kubectl("describe", "pod", "seven")
    await kubectl("apply", "-f", str(EXAMPLES))
    pods = {path.stem: yaml.safe_load(path.read_text()) for path in EXAMPLES.glob("*[0-9].yaml")}
    assert len(pods) == 5
    for example in pods.values():
        await kubectl("wait", "--for=condition=Ready", f"pod/{example['metadata']['name']}", "--timeout=60s")
    assert await ids(kubectl, "nine-cores-on-inf1") == "0,1,2,3,4,5,6,7,8"
    assert "successfully rolled out" in await kubectl("rollout", "status", "deployment/one-device-each-on-inf2")
    await kubectl("wait", "--for=condition=complete", "job/four-devices-each-on-trn1", "--timeout=60s")
    assert lines(await kubectl("get", "job", "four-devices-each-on-trn1"))[1][1:3] == ["Complete", "4/4"]
    await kubectl("scale", "deployment/one-device-each-on-inf2", "--replicas=4")
    assert "successfully rolled out" in await kubectl("rollout", "status", "deployment/one-device-each-on-inf2")
    await kubectl("delete", "-f", str(EXAMPLES))
    for gone in ("app=one-device-each", "job-name=four-devices-each-on-trn1"):
        await kubectl("wait", "--for=delete", "pod", "-l", gone, "--timeout=60s")
    assert [row[0] for row in lines(await kubectl("get", "pods"))[1:]] == ["seven"]


async def test_the_verification_steps_of_aws(demo: Served) -> None:
    """Pods of kube-system, the scheduler's log, a sample pod with 9 cores of inf1.6xlarge, its events."""
    kubectl = demo.kubectl
    listed = lines(await kubectl("get", "pods", *IN_SYSTEM))[1:]
    assert {(ready, status) for _, ready, status, *_ in listed} == {("1/1", "Running")}
    (name,) = [row[0] for row in listed if row[0].startswith("my-scheduler-")]
    assert sum(row[0].startswith("neuron-device-plugin-daemonset-") for row in listed) == 6, "one on each Neuron node"
    container = {
        "name": "nrt-test",
        "image": "nrt-test",
        "resources": {
            "limits": {"cpu": "4", "memory": "4Gi", "aws.amazon.com/neuroncore": 9},
            "requests": {"cpu": "1", "memory": "1Gi"},
        },
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "schedulerName": "my-scheduler",
        "nodeSelector": {"node.kubernetes.io/instance-type": "inf1.6xlarge"},
        "containers": [container],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "nrt-test"}, "spec": spec}
    await kubectl("apply", "-f", "-", stdin=pod)
    await kubectl("wait", "--for=condition=Ready", "pod/nrt-test", "--timeout=60s")
    assert await ids(kubectl, "nrt-test") == "0,1,2,3,4,5,6,7,8"
    log = await kubectl.until(f"{BOUND}nrt-test", "logs", name, *IN_SYSTEM)
    (line,) = [row for row in log.splitlines() if f"{BOUND}nrt-test" in row]
    for words in ('node="inf1-a"', "evaluatedNodes=7", "feasibleNodes=1"):
        assert words in line
    wanted = "Successfully assigned default/nrt-test to inf1-a (cores 0-8)"
    await kubectl.until(wanted, "describe", "pod", "nrt-test")
    assert wanted in await kubectl("get", "events", "--field-selector=involvedObject.name=nrt-test")
    assert "inf1-a" in await kubectl("get", "pod", "nrt-test", "-o", "wide")
    assert "node/inf1-a annotated" in await kubectl(
        "annotate", "node", "--all", "NEURON_DEV_USAGE_MAP-", "NEURON_CORE_USAGE_MAP-"
    )


async def test_the_check_before_the_installation(demo: Served) -> None:
    """README's first command warns of the policies, which the demo has not installed, and finds no error."""
    command = [sys.executable, "-m", "neuron_scheduler", "check", "--kubeconfig", str(demo.kubeconfig), "-o", "json"]
    done = await anyio.run_process(command, cwd=ROOT, check=False)
    report = json.loads(done.stdout)
    assert {found["subject"] for found in report["findings"] if found["severity"] == "warning"} == {"policies"}
    assert report["counts"]["error"] == 0


async def test_readme_s_installation(demo: Served) -> None:
    """The manifests take over the demo's Deployment without a warning, a replica takes over, and -v=4 is a setting."""
    kubectl = demo.kubectl
    await kubectl("apply", "-k", str(ROOT / "manifests/lease-watch"))
    applied = await kubectl("apply", "-k", str(ROOT / "manifests"))
    assert "deployment.apps/my-scheduler configured" in applied
    assert "Warning" not in applied
    rolled = ("rollout", "status", *SCHEDULER, "--timeout=60s")
    assert "successfully rolled out" in await kubectl(*rolled)
    await kubectl("apply", "-f", str(EXAMPLES / "trn1.yaml"))
    await kubectl("wait", "--for=condition=Ready", "pod/four-devices-on-trn1", "--timeout=60s")
    first = await leader(kubectl)
    await kubectl.until(f"{BOUND}four-devices-on-trn1", "logs", first, *IN_SYSTEM)
    await kubectl("delete", "pod", first, *IN_SYSTEM)
    await kubectl("apply", "-f", str(EXAMPLES / "inf2.yaml"))
    await kubectl("wait", "--for=condition=Ready", "pod/three-devices-on-inf2", "--timeout=60s")
    assert await leader(kubectl) not in {"", first}
    whole = ("logs", *IN_SYSTEM, "-l", OURS, "--tail=-1", "--prefix")
    await kubectl.until(f"{BOUND}three-devices-on-inf2", *whole)
    settings = yaml.safe_load(await kubectl("get", "configmap", "neuron-scheduler-config", *IN_SYSTEM, "-o", "yaml"))
    settings["data"]["config.yaml"] = settings["data"]["config.yaml"].replace("verbosity: 2", "verbosity: 4")
    await kubectl("apply", "-f", "-", stdin=settings)
    await kubectl("scale", *SCHEDULER, "--replicas=1")
    await kubectl("rollout", "restart", *SCHEDULER)
    assert "successfully rolled out" in await kubectl(*rolled)
    await kubectl("apply", "-f", str(EXAMPLES / "inf1.yaml"))
    await kubectl("wait", "--for=condition=Ready", "pod/nine-cores-on-inf1", "--timeout=60s")
    for words in (
        "POD nine-cores-on-inf1 fits in Node:inf1-a",
        "Finished Processing Filter Request...",
        "Executing Bind Request!",
        "Allocated ids for POD nine-cores-on-inf1 are: 0,1,2,3,4,5,6,7,8",
        "Finished executing Bind Request...",
    ):
        await kubectl.until(words, "logs", *SCHEDULER)
    await kubectl("delete", "-k", str(ROOT / "manifests"))
    await kubectl("wait", "--for=delete", "pod", *IN_SYSTEM, "-l", OURS, "--timeout=60s")
    assert await kubectl("get", "pods", *IN_SYSTEM, "-o", "name", "-l", OURS) == ""


async def test_logs_follow_and_are_cut(tmp_path: Path) -> None:
    """`-f` prints a line when it is written and ends with the pod; tail, since and timestamps; mistakes are named."""
    async with served(tmp_path) as demo:
        kubectl = demo.kubectl
        follow = [str(KUBECTL), f"--server={kubectl.url}", "logs", "-f", "--tail=0", *SCHEDULER]
        async with await anyio.open_process(follow, env={"HOME": str(tmp_path)}) as process:
            assert process.stdout is not None
            text = ""
            with anyio.fail_after(PATIENCE):
                number = 0
                while f"{BOUND}p" not in text:
                    number += 1
                    await kubectl("apply", "-f", "-", stdin=one_core(f"p{number}"))
                    with anyio.move_on_after(1):
                        text += (await process.stdout.receive()).decode()
            await kubectl("delete", "pod", *IN_SYSTEM, "-l", OURS, "--wait=false")
            with anyio.fail_after(PATIENCE):
                assert await process.wait() == 0
        assert "successfully rolled out" in await kubectl("rollout", "status", *SCHEDULER)
        assert len(lines(await kubectl("logs", *SCHEDULER, "--tail=2"))) == 2
        stamped = (await kubectl("logs", *SCHEDULER, "--tail=1", "--timestamps")).split()[0]
        assert stamped.startswith("20")
        assert stamped.endswith("Z")
        assert len((await kubectl("logs", *SCHEDULER, "--since=1h")).splitlines()) > 2
        assert await kubectl("logs", *SCHEDULER, "--since-time=2999-01-01T00:00:00Z") == ""
        assert "not found" in await kubectl("logs", *SCHEDULER, "--previous", code=1)
        assert "is not valid for pod" in await kubectl("logs", *SCHEDULER, "-c", "other", code=1)
        assert "does not have a host assigned" in await kubectl("logs", "seven", code=1)


async def test_a_scheduler_that_cannot_start_is_restarted(tmp_path: Path) -> None:
    """A mistake in the settings is in the log of a pod that backs off; the rollout keeps the old one at work."""
    async with served(tmp_path) as demo:
        kubectl = demo.kubectl
        ready = f"pod/{await leader(kubectl)}"
        mistake = [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--no-such-flag"}]
        await kubectl("patch", *SCHEDULER, "--type=json", "-p", json.dumps(mistake))
        path = "jsonpath={.status.containerStatuses[0].restartCount}=2"
        names: set[str] = set()
        with anyio.fail_after(PATIENCE):
            while len(names) < 2:
                names = set((await kubectl("get", "pods", *IN_SYSTEM, "-o", "name", "-l", OURS)).split())
        (new,) = names - {ready}
        await kubectl("wait", f"--for={path}", new, *IN_SYSTEM, "--timeout=60s")
        await kubectl.until("CrashLoopBackOff", "get", new, *IN_SYSTEM)
        assert "--no-such-flag" in await kubectl("logs", new, *IN_SYSTEM)
        assert "--no-such-flag" in await kubectl("logs", new, *IN_SYSTEM, "--previous")
        await kubectl("apply", "-f", "-", stdin=one_core("p"))
        await kubectl("wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
        await kubectl("rollout", "undo", *SCHEDULER)
        assert "successfully rolled out" in await kubectl("rollout", "status", *SCHEDULER, "--timeout=60s")
        assert (await kubectl("get", "pods", *IN_SYSTEM, "-o", "name", "-l", OURS)).split() == [ready]


async def test_a_pod_that_is_removed_by_force_takes_its_process_with_it(tmp_path: Path) -> None:
    """Without grace the pod is gone before its process has ended; it lets go of the Lease all the same."""
    async with served(tmp_path) as demo:
        kubectl = demo.kubectl
        first = await leader(kubectl)
        before = await kubectl("get", "lease", "my-scheduler", *IN_SYSTEM, "-o", "jsonpath={.metadata.resourceVersion}")
        await kubectl("delete", "pod", first, *IN_SYSTEM, "--force", "--grace-period=0")
        with anyio.fail_after(PATIENCE):
            while await leader(kubectl) in {"", first}:
                pass
        changes = await kubectl("get", "--raw", f"{LEASES}?watch=1&resourceVersion={before}&timeoutSeconds=1")
        holders = [json.loads(line)["object"]["spec"]["holderIdentity"] for line in changes.splitlines()]
        assert "" in holders  # it was released: it did not expire
        assert "successfully rolled out" in await kubectl("rollout", "status", *SCHEDULER, "--timeout=60s")
        mounts = [
            {
                "op": "add",
                "path": "/spec/template/spec/volumes",
                "value": [{"name": "config", "configMap": {"name": "absent"}}],
            },
            {
                "op": "add",
                "path": "/spec/template/spec/containers/0/volumeMounts",
                "value": [{"name": "config", "mountPath": "/etc/x"}],
            },
        ]
        await kubectl("patch", *SCHEDULER, "--type=json", "-p", json.dumps(mounts))
        reason = "jsonpath={.items[*].status.containerStatuses[0].state.waiting.reason}"
        await kubectl.until("ContainerCreating", "get", "pods", *IN_SYSTEM, "-o", reason)
        await kubectl.until('configmap "absent" not found', "get", "events", *IN_SYSTEM)
        await kubectl("create", "configmap", "absent", *IN_SYSTEM, "--from-literal=a=b")
        assert "successfully rolled out" in await kubectl("rollout", "status", *SCHEDULER, "--timeout=60s")


async def test_the_kubeconfig_and_the_picture(tmp_path: Path) -> None:
    """The printed file makes plain kubectl commands work, the picture follows them, and the file goes at the end."""
    async with served(tmp_path) as demo:
        environment = {"HOME": str(tmp_path), "KUBECONFIG": str(demo.kubeconfig)}
        for command in re.findall(r"^  kubectl (.*)$", demo.printed, re.MULTILINE):
            await anyio.run_process([str(KUBECTL), *command.split()], env=environment, cwd=ROOT)
        assert "inf1-a" in await read_until(demo.process, "1 of 4 devices free")
        file = demo.kubeconfig
    assert not file.exists()


def test_its_deployment_is_that_of_the_manifests() -> None:
    """With another selector `kubectl apply -k manifests/` would be refused, with another name add a container."""
    rendered = subprocess.run([KUBECTL, "kustomize", ROOT / "manifests"], capture_output=True, text=True, check=True)
    (theirs,) = [item for item in yaml.safe_load_all(rendered.stdout) if item["kind"] == "Deployment"]
    ours = installation.deployment()
    assert (ours["metadata"]["name"], ours["metadata"]["namespace"]) == ("my-scheduler", "kube-system")
    assert ours["metadata"]["name"] == theirs["metadata"]["name"]
    assert ours["spec"]["selector"] == theirs["spec"]["selector"]
    (our_container,), (their_container,) = (both["spec"]["template"]["spec"]["containers"] for both in (ours, theirs))
    assert our_container["name"] == their_container["name"]


def one_core(name: str) -> dict[str, Any]:
    """A pod for our scheduler that asks for one core."""
    limits = {"aws.amazon.com/neuroncore": "1"}
    container = {"name": "main", "image": "example/app:1", "resources": {"limits": limits}}
    spec = {"schedulerName": "my-scheduler", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
