"""An API server that does not serve a kind that the scheduler needs: log and /readyz say which, and why."""

from pathlib import Path
from typing import Final

import pytest

from tests.control_plane.server import run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.process import run_scheduler

pytestmark = pytest.mark.control_plane

BUDGETS: Final = "/apis/policy/v1/poddisruptionbudgets"
REMEDY: Final = "remove what switches it off from kube-apiserver's --runtime-config"


async def test_a_kind_that_is_switched_off(tmp_path: Path) -> None:
    """The replica waits and is not ready; each place names the kind and says what to do."""
    async with run_control_plane(api_server_flags=["--runtime-config=policy/v1=false"]) as plane:
        await rights.grant(plane.admin)
        token = await plane.token_for("kube-system", "neuron-scheduler")
        async with run_scheduler(plane.kubeconfig(tmp_path / "account", token=token)) as scheduler:
            await scheduler.line("Watch failed", f'resource="{BUDGETS}"', REMEDY)
            status, text = await scheduler.get("/readyz")
            assert status == 500
            assert f"{BUDGETS} (the API server does not serve it; {REMEDY})" in text
