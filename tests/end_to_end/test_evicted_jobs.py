"""What an eviction is to a Job, with the real Job controller: no failure, if its manifest is like the ones we show."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
import yaml

from tests.control_plane.fake_kubelet import FakeKubelet, path_of, unless_outrun
from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import STRATEGIC, Object, RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end import rights
from tests.end_to_end.process import ACQUIRED, run_scheduler, until
from tests.end_to_end.workload import PODS, add_priority_classes, placed
from tests.support.documented_commands import ROOT

pytestmark = pytest.mark.control_plane

JOBS: Final = "/apis/batch/v1/namespaces/default/jobs"


class Kubelet(FakeKubelet):
    """Stops the containers of a terminating pod first, as a real one does: the pod has failed before it is gone."""

    async def _end(self, pod: Object) -> None:
        with unless_outrun():
            await self.api.patch(f"{path_of(pod)}/status", {"status": {"phase": "Failed"}}, content_type=STRATEGIC)
        await super()._end(pod)


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with run_control_plane(with_controller_manager=True) as plane:
        await rights.grant(plane.admin)
        yield plane


async def active(api: RestClient, name: str) -> tuple[int, int, list[str]]:
    """Return how many pods of a Job are active, how many have failed, and its conditions."""
    status = (await api.get(f"{JOBS}/{name}"))["status"]
    conditions = [each["type"] for each in status.get("conditions", ())]
    return status.get("active", 0), status.get("failed", 0), conditions


async def test_an_evicted_pod_is_no_failure(plane: ControlPlane, tmp_path: Path) -> None:
    """Both pods of the example leave for another pod, and new ones come; without the policy, the Job fails."""
    api, example = plane.admin, yaml.safe_load((ROOT / "manifests" / "examples" / "job.yaml").read_text())
    name, other = example["metadata"]["name"], "without"
    example["spec"]["backoffLimit"] = 0
    token = await plane.token_for("kube-system", "neuron-scheduler")
    async with run_scheduler(plane.kubeconfig(tmp_path / "kubeconfig", token=token)) as scheduler:
        await scheduler.line(ACQUIRED)
        await create_node(api, node_manifest("trn1", "trn1.32xlarge"))
        await add_priority_classes(api, high=1000)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(Kubelet(api).run)
            spec: dict[str, Any] = {**example["spec"]}
            del spec["podFailurePolicy"]
            await api.apply(example)
            await api.apply({**example, "metadata": {"name": other}, "spec": spec})
            # All four run: a pod that is not bound yet is not evicted, and its Job does not fail.
            await until(partial(_runs, api, name))
            await until(partial(_runs, api, other))
            await create_pod(api, pod_manifest("urgent", neuron=16, priorityClassName="high"))
            assert (await placed(api, "urgent"))["spec"]["nodeName"] == "trn1"
            await api.delete(f"{PODS}/urgent")
            await until(partial(_has_failed, api, other))
            await until(partial(_runs, api, name))
            assert await active(api, name) == (2, 0, [])
            tasks.cancel_scope.cancel()


async def _has_failed(api: RestClient, name: str) -> bool:
    return "Failed" in (await active(api, name))[2]


async def _runs(api: RestClient, name: str) -> bool:
    """Return whether both pods of a Job run."""
    pods: list[Object] = (await api.get(PODS, labelSelector=f"batch.kubernetes.io/job-name={name}"))["items"]
    ended = [pod for pod in pods if pod["status"]["phase"] != "Running" or "deletionTimestamp" in pod["metadata"]]
    return len(pods) - len(ended) == 2
