"""The chart can be tried on a laptop: the real helm against `demo --serve`."""

import subprocess
from pathlib import Path

import anyio
import pytest

from tests.control_plane.binaries import require
from tests.support.demo import ROOT, served

CHART = str(ROOT / "manifests" / "chart")
IN_SYSTEM = ("--namespace", "kube-system")


@pytest.mark.control_plane
async def test_helm_installs_upgrades_and_removes(tmp_path: Path) -> None:
    """AWS's command with our chart; the pods of the release are real schedulers, and helm waits for them."""
    async with served(tmp_path) as demo:
        homes = {f"HELM_{kind}_HOME": str(tmp_path / kind) for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {"HOME": str(tmp_path), "KUBECONFIG": str(demo.kubeconfig), **homes}

        async def helm(*arguments: str) -> str:
            command = [str(require("helm")), *arguments, *IN_SYSTEM]
            done = await anyio.run_process(command, stderr=subprocess.STDOUT, check=False, env=environment)
            assert done.returncode == 0, done.stdout.decode()
            return done.stdout.decode()

        kubectl = demo.kubectl
        await kubectl("delete", "deployment", "my-scheduler", *IN_SYSTEM)  # helm takes over nothing that is not its own
        install = ("upgrade", "--install", "neuron-scheduler", CHART)
        values = ("--set=scheduler.enabled=true", "--set=npd.enabled=false", "--set=image.repository=neuron-scheduler")
        assert "STATUS: deployed" in await helm(*install, *values, "--wait", "--timeout=60s")
        await kubectl("apply", "-f", str(ROOT / "manifests/examples/trn1.yaml"))
        await kubectl("wait", "--for=condition=Ready", "pod/four-devices-on-trn1", "--timeout=30s")
        assert "REVISION: 2" in await helm(*install, *values, "--set=replicas=1", "--wait", "--timeout=60s")
        replicas = ("get", "deployment", "my-scheduler", *IN_SYSTEM, "-o", "jsonpath={.spec.replicas}")
        assert await kubectl(*replicas) == "1"
        await helm("rollback", "neuron-scheduler", "1", "--wait", "--timeout=60s")
        assert await kubectl(*replicas) == "2"
        await helm("uninstall", "neuron-scheduler", "--wait", "--timeout=60s")
        await kubectl("get", "deployment", "my-scheduler", *IN_SYSTEM, code=1)
        assert "four-devices-on-trn1" in await kubectl("get", "pods", "-o", "name"), "running pods stay"
