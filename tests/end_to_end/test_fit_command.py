"""The command `fit` against a real API server: the pods that are created then do what it said."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import yaml

from tests.control_plane.objects import create_pod, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import add_nodes, all_placed, kubelets, placed, refused


async def fit(kubeconfig: Path, *arguments: str, code: int) -> Any:
    """Run the command as a user would, and return its JSON answer."""
    command = [sys.executable, "-m", "neuron_scheduler", "fit", f"--kubeconfig={kubeconfig}", "-o", "json", *arguments]
    ended = await anyio.to_thread.run_sync(lambda: subprocess.run(command, capture_output=True, check=False))
    assert (ended.returncode, ended.stderr) == (code, b"")
    (answer,) = json.loads(ended.stdout)["workloads"]
    return answer


async def test_what_it_says_happens(
    api: RestClient, scheduler: SchedulerProcess, plane: ControlPlane, tmp_path: Path
) -> None:
    """Of five pods as many are bound as it said, to these nodes; the next one waits with its sentence."""
    kubeconfig = plane.kubeconfig(tmp_path / "kubeconfig")
    await add_nodes(scheduler, api, a="trn1.32xlarge", b="trn1.32xlarge", c="inf2.24xlarge")
    await placed(api, "before", neuron=8)
    manifest = pod_manifest("asked", neuron=4)
    file = tmp_path / "job.yaml"
    spec = {**manifest["spec"], "restartPolicy": "Never"}
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "asked"},
                "spec": {"parallelism": 20, "template": {"spec": spec}},
            }
        )
    )
    said = await fit(kubeconfig, "-f", str(file), code=1)
    assert (said["asked"], said["fitting"], said["limit"]["cause"]) == (20, 7, "capacity")
    assert [bought["enough"] for bought in said["purchases"]] == [True] * len(said["purchases"])

    names = [f"pod-{number}" for number in range(said["fitting"])]
    async with kubelets(api):  # else the allocate fence holds the second pod of a node back
        for name in names:
            await create_pod(api, pod_manifest(name, neuron=4))
        bound = await all_placed(api, names)
        condition = await refused(api, "one-more", neuron=4)

    given = sorted(
        (bound[name]["spec"]["nodeName"], bound[name]["metadata"]["annotations"]["AWS_NEURON_IDS"]) for name in names
    )
    assert given == sorted((pod["nodeName"], ",".join(map(str, pod["ids"]))) for pod in said["placed"])
    assert condition["message"].startswith(said["limit"]["message"])
    assert (await fit(kubeconfig, "--devices=4", "--replicas=1", code=1))["fitting"] == 0
