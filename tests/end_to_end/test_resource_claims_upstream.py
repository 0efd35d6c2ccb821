"""Upstream's end-to-end tests of claims that need no kubelet and no feature gate, with this scheduler alone."""

import json
from pathlib import Path
from typing import Final

import anyio
import pytest

from tests.control_plane.binaries import RELEASE, releases
from tests.control_plane.build import build_source
from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import create_node, node_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, running_controllers
from tests.end_to_end import rights
from tests.end_to_end.process import ACQUIRED, ROOT, run_scheduler
from tests.neuron.claims.oracle import END_TO_END

SELECTED: Final = (
    "--ginkgo.focus=control plane",
    "--ginkgo.label-filter=Feature: isEmpty && FeatureGate: isEmpty",
    "--ginkgo.skip=truncates the name of a generated resource claim",  # its slices are for nodes by a selector
)


@pytest.mark.skipif(releases()[-1] != RELEASE, reason="they are of the newest release")
@pytest.mark.timeout(1800)  # a test that fails takes five minutes
async def test_they_pass(plane: ControlPlane, empty: RestClient, account: Path, tmp_path: Path) -> None:
    """Their driver publishes devices of its own, and their pods are only scheduled."""
    await rights.grant(empty, rights.manifests(ROOT / "manifests" / "components" / "claims" / "rbac.yaml"))
    for number in range(4):
        await create_node(empty, node_manifest(f"n{number}", "m5.large", cpu=64))
    report, admin = tmp_path / "report.json", plane.kubeconfig(tmp_path / "admin.kubeconfig")
    flags = ("-provider=skeleton", f"-kubeconfig={admin}", f"-host={plane.server}", f"--ginkgo.json-report={report}")
    program = await anyio.to_thread.run_sync(build_source, END_TO_END)
    async with (
        running_controllers(plane),
        anyio.create_task_group() as tasks,
        run_scheduler(account, "--claims", "--scheduler-name=default-scheduler") as scheduler,
    ):
        tasks.start_soon(FakeKubelet(empty).run)
        await scheduler.line(ACQUIRED)
        await anyio.run_process([program, *flags, *SELECTED], check=False)
        assert await scheduler.stop() == 0
        tasks.cancel_scope.cancel()
    specs = [each for suite in json.loads(report.read_text()) for each in suite["SpecReports"]]
    states = {each["LeafNodeText"]: each["State"] for each in specs if each["State"] != "skipped"}
    assert states == dict.fromkeys(states, "passed")
    assert len(states) == 18
