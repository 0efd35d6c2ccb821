"""
The real kube-scheduler with the extender entry of `manifests/default-scheduler`, pointed at a process under test.

Everything but the address, the credentials and the log is the manifest's: what a user applies is what is tested.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.control_plane.component import Component
from tests.control_plane.kube_scheduler import kube_scheduler
from tests.control_plane.server import SCHEDULER, ControlPlane
from tests.end_to_end.process import ROOT

CONFIGURATION: Final = ROOT / "manifests" / "default-scheduler" / "scheduler-config.yaml"
NAME: Final = "default-scheduler"


def configuration(url: str, kubeconfig: Path, **fields: Any) -> dict[str, Any]:
    """
    Return the manifest's KubeSchedulerConfiguration for an extender at another URL.

    Args:
        url: without a path.
        kubeconfig: kube-scheduler's.
        fields: replace those of the extender's entry.
    """
    document: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
    [extender] = document["extenders"]
    return {
        **document,
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "podMaxBackoffSeconds": 2,  # tests wait for retries
        "extenders": [{**extender, "urlPrefix": url, **fields}],
    }


@asynccontextmanager
async def run_kube_scheduler(plane: ControlPlane, url: str, **fields: Any) -> AsyncIterator[Component]:
    """Run kube-scheduler with an extender at this URL until the block is left."""
    kubeconfig = plane.kubeconfig(plane.folder / "extended.kubeconfig", token=SCHEDULER.token)
    scheduler = kube_scheduler(configuration(url, kubeconfig, **fields), plane.folder, name="extended", v=3)
    async with scheduler.started() as component:
        yield component
