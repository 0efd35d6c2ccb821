"""The chart can be tried on a laptop: the real helm against `demo --serve`."""

from functools import partial
from pathlib import Path

import anyio
import pytest

from tests.support.demo import ROOT, served
from tests.support.helm import CHART, RELEASE, Helm

IN_SYSTEM = ("--namespace", "kube-system")


@pytest.mark.control_plane
async def test_helm_installs_upgrades_and_removes(tmp_path: Path) -> None:
    """AWS's command with our chart; the pods of the release are real schedulers, and helm waits for them."""
    async with served(tmp_path) as demo:
        user, kubectl = Helm(tmp_path / "helm", demo.kubeconfig), demo.kubectl

        async def helm(*arguments: str | Path) -> str:
            return await anyio.to_thread.run_sync(partial(user.run, *arguments, *IN_SYSTEM))

        await kubectl("delete", "deployment", "my-scheduler", *IN_SYSTEM)  # helm takes over nothing that is not its own
        install = ("upgrade", "--install", RELEASE, CHART)
        values = ("--set=scheduler.enabled=true", "--set=npd.enabled=false", "--set=image.repository=neuron-scheduler")
        assert "STATUS: deployed" in await helm(*install, *values, "--wait", "--timeout=60s")
        await kubectl("apply", "-f", str(ROOT / "manifests/examples/trn1.yaml"))
        await kubectl("wait", "--for=condition=Ready", "pod/four-devices-on-trn1", "--timeout=60s")
        assert "REVISION: 2" in await helm(*install, *values, "--set=replicas=1", "--wait", "--timeout=60s")
        replicas = ("get", "deployment", "my-scheduler", *IN_SYSTEM, "-o", "jsonpath={.spec.replicas}")
        assert await kubectl(*replicas) == "1"
        await helm("rollback", RELEASE, "1", "--wait", "--timeout=60s")
        assert await kubectl(*replicas) == "2"
        await helm("uninstall", RELEASE, "--wait", "--timeout=60s")
        await kubectl("get", "deployment", "my-scheduler", *IN_SYSTEM, code=1)
        assert "four-devices-on-trn1" in await kubectl("get", "pods", "-o", "name"), "running pods stay"
