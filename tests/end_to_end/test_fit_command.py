"""The command `fit` against a real API server: the pods that are created then do what it said."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import yaml

from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import SYNCED, run_scheduler
from tests.end_to_end.test_questions import Users, account_of_ours, users  # noqa: F401 - fixtures
from tests.end_to_end.workload import add_nodes, placed


def job(folder: Path) -> str:
    """Write a Job of twenty pods with four devices each, and return the path."""
    spec = {**pod_manifest("asked", neuron=4)["spec"], "restartPolicy": "Never"}
    made = {"kind": "Job", "metadata": {"name": "asked"}, "spec": {"parallelism": 20, "template": {"spec": spec}}}
    (folder / "job.yaml").write_text(yaml.safe_dump({"apiVersion": "batch/v1", **made}))
    return str(folder / "job.yaml")


async def fit(kubeconfig: Path, *arguments: str, code: int) -> Any:
    """Run the command as a user would, and return its JSON answer."""
    command = [sys.executable, "-m", "neuron_scheduler", "fit", f"--kubeconfig={kubeconfig}", "-o", "json", *arguments]
    ended = await anyio.to_thread.run_sync(lambda: subprocess.run(command, capture_output=True, check=False))
    assert (ended.returncode, ended.stderr) == (code, b"")
    (answer,) = json.loads(ended.stdout)["workloads"]
    return answer


async def test_the_running_scheduler_says_the_same(
    users: Users,  # noqa: F811 - a fixture
    account_of_ours: Path,  # noqa: F811 - likewise
    plane: ControlPlane,
    empty: RestClient,
    tmp_path: Path,
) -> None:
    """About a file and about a size, with purchases; only the notes differ."""
    file, admin = job(tmp_path), plane.kubeconfig(tmp_path / "admin")
    token = plane.kubeconfig(tmp_path / "token", token=users.admin)
    async with run_scheduler(account_of_ours, "--answer-questions", "--leader-elect=false") as scheduler:
        await scheduler.line(SYNCED)
        await add_nodes(scheduler, empty, a="trn1.32xlarge", b="inf2.24xlarge")
        await placed(empty, "before", neuron=8)
        for question in (["-f", file], ["--devices=4,4", "--replicas=9", "--buy=2xtrn1.32xlarge,1xtrn2.48xlarge"]):
            read = await fit(admin, *question, code=1)
            asked = await fit(token, *question, f"--ask=http://127.0.0.1:{scheduler.port}", code=1)
            assert asked | {"notes": []} == read | {"notes": []}
        assert await scheduler.stop() == 0
