"""The laptop road: a demo that serves has room, takes README's examples and AWS's steps, and its scheduler is a pod."""

import json
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml

from tests.control_plane.binaries import require
from tests.support.demo import ROOT, Served, read_until, served
from tests.support.kubectl import KUBECTL, Kubectl, lines, plugins_in
from tests.support.kustomize import customized

EXAMPLES = ROOT / "manifests" / "examples"
IN_SYSTEM = ("--namespace", "kube-system")
OURS = "app.kubernetes.io/name=neuron-scheduler"
BOUND = '"Successfully bound pod to node" pod="default/'


@pytest.fixture(params=["newest", pytest.param("of the cluster's version", marks=pytest.mark.control_plane)])
async def demo(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """A demo that serves, with kubectl from the package index and with the one that the control plane's build makes."""
    program = KUBECTL if request.param == "newest" else require("kubectl")
    async with served(tmp_path, program) as running:
        yield running


async def ids(kubectl: Kubectl, pod: str) -> str:
    return await kubectl("get", "pod", pod, "-o", "jsonpath={.metadata.annotations.AWS_NEURON_IDS}")


async def leader(kubectl: Kubectl) -> str:
    """Return the pod that holds the Lease; empty if none does."""
    holder = await kubectl("get", "lease", "my-scheduler", *IN_SYSTEM, "-o", "jsonpath={.spec.holderIdentity}")
    return holder.partition("_")[0]


async def test_every_example_runs(demo: Served) -> None:
    """There is room for all of them at once, pods, Deployment and Job; a deletion frees; what is printed works."""
    kubectl = demo.kubectl
    path = f"{plugins_in(kubectl.home / 'bin')}:{os.environ['PATH']}"  # as `make demo` does in .venv/bin
    environment = {"HOME": str(kubectl.home), "KUBECONFIG": str(demo.kubeconfig), "PATH": path}
    for command in re.findall(r"^  kubectl (.*)$", demo.printed, re.MULTILINE):
        await anyio.run_process([str(KUBECTL), *command.split()], env=environment, cwd=ROOT)
    assert "inf1-a" in await read_until(demo.process, "1 of 4 devices free")
    assert [row[0] for row in lines(await kubectl("get", "pods"))[1:]] == ["seven"]
    assert "pod/seven" in {row[3] for row in lines(await kubectl("get", "events"))[1:]}
    assert "does not support requests for device: 7" in await kubectl("describe", "pod", "seven")
    await kubectl("apply", "-f", str(EXAMPLES))
    pods = {path.stem: yaml.safe_load(path.read_text()) for path in EXAMPLES.glob("*[0-9].yaml")}
    assert len(pods) == 5
    await kubectl("wait", "--for=condition=complete", "job/four-machines-of-an-ultraserver", "--timeout=60s")
    names = [f"pod/{example['metadata']['name']}" for example in pods.values()]
    await kubectl("wait", "--for=condition=Ready", *names, "--timeout=60s")
    assert await ids(kubectl, "nine-cores-on-inf1") == "0,1,2,3,4,5,6,7,8"
    assert "successfully rolled out" in await kubectl("rollout", "status", "deployment/one-device-each-on-inf2")
    await kubectl("wait", "--for=condition=complete", "job/four-devices-each-on-trn1", "--timeout=60s")
    assert lines(await kubectl("get", "job", "four-devices-each-on-trn1"))[1][1:3] == ["Complete", "4/4"]
    await kubectl("delete", "-f", str(EXAMPLES))
    for gone in (
        "app=one-device-each",
        "job-name=four-devices-each-on-trn1",
        "job-name=four-machines-of-an-ultraserver",
    ):
        await kubectl("wait", "--for=delete", "pod", "-l", gone, "--timeout=60s")
    assert [row[0] for row in lines(await kubectl("get", "pods"))[1:]] == ["seven"]


async def test_the_steps_of_aws_and_another_scheduler(demo: Served) -> None:
    """The check before, the scheduler's log, a sample pod with 9 cores, its events; a deleted scheduler is replaced."""
    kubectl = demo.kubectl
    command = [sys.executable, "-m", "neuron_scheduler", "check", "--kubeconfig", str(demo.kubeconfig), "-o", "json"]
    report = json.loads((await anyio.run_process(command, cwd=ROOT, check=False)).stdout)
    assert [found["code"] for found in report["findings"] if found["severity"] in ("error", "warning")] == [
        "device-plugin-missing"
    ]
    (listed,) = lines(await kubectl("get", "pods", *IN_SYSTEM))[1:]
    assert listed[1:3] == ["1/1", "Running"]
    await kubectl("apply", "-f", "-", stdin=sample("nrt-test"))
    await kubectl("wait", "--for=condition=Ready", "pod/nrt-test", "--timeout=60s")
    assert await ids(kubectl, "nrt-test") == "0,1,2,3,4,5,6,7,8"
    log = await kubectl.until(f"{BOUND}nrt-test", "logs", "deployment/my-scheduler", *IN_SYSTEM)
    (line,) = [row for row in log.splitlines() if f"{BOUND}nrt-test" in row]
    for words in ('node="inf1-a"', "evaluatedNodes=13", "feasibleNodes=1"):
        assert words in line
    wanted = "Successfully assigned default/nrt-test to inf1-a (cores 0-8)"
    await kubectl.until(wanted, "describe", "pod", "nrt-test")
    assert "inf1-a" in await kubectl("get", "pod", "nrt-test", "-o", "wide")
    await kubectl("annotate", "node", "--all", "NEURON_DEV_USAGE_MAP-", "NEURON_CORE_USAGE_MAP-")
    await kubectl("delete", "pod", "nrt-test")
    first = await leader(kubectl)
    await kubectl("delete", "pod", first, *IN_SYSTEM)
    await kubectl("apply", "-f", "-", stdin=sample("again"))
    await kubectl("wait", "--for=condition=Ready", "pod/again", "--timeout=60s")
    assert await leader(kubectl) not in {"", first}
    await kubectl.until(f"{BOUND}again", "logs", *IN_SYSTEM, "--selector", OURS, "--tail=200", "--prefix")


async def test_an_installation(tmp_path: Path) -> None:
    """README's install step, other settings, settings that no replica accepts, and a removal, all as in a cluster."""
    async with served(tmp_path) as demo:
        kubectl, folder = demo.kubectl, customized("my-scheduler", tmp_path)
        rollout = ("rollout", "status", *IN_SYSTEM, "--timeout=60s", "deployment/my-scheduler")
        for each in (folder / "lease-watch", folder):
            assert "Warning" not in await kubectl("apply", "-k", str(each))
        await kubectl(*rollout)
        assert [row[1] for row in lines(await kubectl("get", "pods", *IN_SYSTEM))[1:]] == ["1/1", "1/1"]
        await kubectl("scale", *IN_SYSTEM, "--replicas=1", "deployment/my-scheduler")
        await kubectl(*rollout)
        settings = folder / "my-scheduler" / "config.yaml"
        good = settings.read_text()
        settings.write_text(good.replace("verbosity: 2", "verbosity: loud"))
        await kubectl("apply", "-k", str(folder))
        crashing = await kubectl.until("CrashLoopBackOff", "get", "pods", *IN_SYSTEM)
        assert "verbosity" in await kubectl("logs", *IN_SYSTEM, "--selector", OURS), crashing
        settings.write_text(good.replace("verbosity: 2", "verbosity: 4"))
        await kubectl("apply", "-k", str(folder))
        await kubectl(*rollout)
        await kubectl("apply", "-f", "-", stdin=sample("after"))
        await kubectl("wait", "--for=condition=Ready", "pod/after", "--timeout=60s")
        for _ in range(2):
            await kubectl("delete", "-k", str(folder))
            await kubectl("wait", "--for=delete", "pod", *IN_SYSTEM, "--selector", OURS, "--timeout=60s")
            await kubectl("apply", "-k", str(folder))
            await kubectl(*rollout)


def sample(name: str, cores: int = 9) -> dict[str, Any]:
    """Return AWS's sample pod, with so many cores of an inf1.6xlarge."""
    resources = {
        "limits": {"cpu": "4", "memory": "4Gi", "aws.amazon.com/neuroncore": cores},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "schedulerName": "my-scheduler",
        "nodeSelector": {"node.kubernetes.io/instance-type": "inf1.6xlarge"},
        "containers": [{"name": "nrt-test", "image": "nrt-test", "resources": resources}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
