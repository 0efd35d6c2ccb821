"""Whatever becomes of one request for a pod, the pod is bound once, with devices of its own, and nothing is lost."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import attrs
import pytest

from tests.control_plane.server import ControlPlane
from tests.end_to_end.claims import clear_storage
from tests.end_to_end.process import ACQUIRED, run_scheduler
from tests.end_to_end.workload import clear
from tests.faults.commit_path import WITH_VOLUMES, CommitPath, cases
from tests.faults.history import History, recording
from tests.faults.proxy import run_proxy

SHORT_TRIES = ("--leader-elect-lease-duration=20s", "--leader-elect-renew-deadline=15s")  # 4 s for a Binding

pytestmark = pytest.mark.timeout(900)  # all cases are one run


@attrs.frozen(eq=False)
class Outcome:
    """What all cases together left behind, after the scheduler has ended."""

    path: CommitPath
    history: History
    bound: Counter[str]
    metrics: Mapping[str, float]
    exit_code: int


@pytest.fixture(scope="module")
async def outcome(fault_plane: ControlPlane, fault_account: Path, controllers: None) -> AsyncIterator[Outcome]:
    """Run all cases at once, with one scheduler."""
    api = fault_plane.admin
    async with (
        recording(api) as history,
        run_proxy(fault_plane) as proxy,
        run_scheduler(fault_account, f"--master={proxy.url}", *SHORT_TRIES) as scheduler,
    ):
        await scheduler.line(ACQUIRED)
        path = CommitPath(api, proxy, scheduler, cases())
        await path.run()
        await history.complete(api)
        metrics = await scheduler.metrics()
        yield Outcome(path, history, history.bound(), metrics, await scheduler.stop())
    await clear_storage(api)
    await clear(api)


@pytest.mark.parametrize("name", [case.name for case in cases()])
async def test_a_pod_whose_request_meets_a_fault(outcome: Outcome, name: str) -> None:
    """It is bound exactly once, and its owner is told so."""
    (case,) = [case for case in outcome.path.cases if case.name == name]
    assert all(one.taken.is_set() for one in case.faults), "the fault was met"
    pod = outcome.path.pods[case.name]
    assert "nodeName" in pod["spec"]
    assert outcome.bound[pod["metadata"]["uid"]] == 1
    assert ("AWS_NEURON_IDS" in pod["metadata"]["annotations"]) == (case.request not in WITH_VOLUMES)
    assert outcome.path.scheduled[case.name] in case.told


async def test_the_oracles_have_no_complaint(outcome: Outcome) -> None:
    """No core was held twice at any moment, each allocation is legal and complete, and nothing of others was lost."""
    assert outcome.history.violations() == []


async def test_nothing_is_left(outcome: Outcome) -> None:
    """No place is kept for a pod that does not need it, and no pod waits."""
    left = ('scheduler_cache_size{type="assumed_pods"}', "neuron_scheduler_binds_in_flight", "scheduler_pending_pods")
    assert {name: value for name, value in outcome.metrics.items() if name.startswith(left) and value} == {}


async def test_the_scheduler_ended_well(outcome: Outcome) -> None:
    """Nothing was in doubt, and no unexpected error came up."""
    assert outcome.exit_code == 0
    assert "Traceback" not in outcome.path.scheduler.log
