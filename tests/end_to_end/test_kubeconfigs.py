"""The process follows its kubeconfig, or ends with one sentence and exit code 2."""

import json
from pathlib import Path

from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, run_scheduler


async def test_acting_as_somebody_without_rights(plane: ControlPlane, tmp_path: Path) -> None:
    """An administrator's kubeconfig with `as` has the rights of that user, and of no group: exit code 2."""
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    content = json.loads(kubeconfig.read_text())
    content["users"][0]["user"]["as"] = "somebody"
    kubeconfig.write_text(json.dumps(content))
    async with run_scheduler(kubeconfig) as scheduler:
        assert await scheduler.ended() == 2
    assert "does not allow this process to" in scheduler.lines[-1]
    assert ", get pods," in scheduler.lines[-1]

    content["users"][0]["user"]["as-groups"] = ["system:masters"]
    kubeconfig.write_text(json.dumps(content))
    async with run_scheduler(kubeconfig) as scheduler:
        await scheduler.line(ACQUIRED)
        assert await scheduler.stop() == 0
