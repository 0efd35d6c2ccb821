"""Objects and watches that cannot be read: they affect only themselves, and all other pods are bound."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.control_plane.objects import create_node, node_manifest, pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import ACQUIRED, BOUND, run_scheduler
from tests.end_to_end.workload import PODS, create_deep, ids_of, placed
from tests.faults.answers import after_lines
from tests.faults.calls import watch_of
from tests.faults.proxy import ALWAYS, Behaviour, Fault, Proxy, run_proxy

FAILURES: Final = 'neuron_scheduler_watch_failures_total{resource="pods"}'
SPOILT: Final = {
    "no JSON": b"<html>502 Bad Gateway</html>\n",
    "a line without an end": b'{"type":"ADDED","object":"' + b"x" * (33 << 20),
}


@pytest.fixture
async def proxy(plane: ControlPlane, empty: RestClient) -> AsyncIterator[Proxy]:
    """Run a proxy in front of a cluster with one machine of six devices."""
    await create_node(empty, node_manifest("inf2", "inf2.24xlarge"))
    async with run_proxy(plane) as proxy:
        yield proxy


@pytest.mark.parametrize("sentence", SPOILT)
async def test_a_watch_that_never_works_is_replaced_by_lists(
    account: Path, empty: RestClient, proxy: Proxy, sentence: str
) -> None:
    """Pods are bound nevertheless, and the metrics show it; `tests/faults/test_watches.py` has more sentences."""
    proxy.add(Fault(watch_of("/api/v1/pods"), Behaviour(after_lines(0, SPOILT[sentence])), times=ALWAYS))
    async with run_scheduler(account, f"--master={proxy.url}") as scheduler:
        await scheduler.line(ACQUIRED)
        assert len(ids_of(await placed(empty, "pod", neuron=1))) == 1
        metrics = await scheduler.until(lambda metrics: metrics.get(FAILURES, 0) >= 3)
        assert metrics[FAILURES] >= 3
        assert await scheduler.stop() == 0


@asynccontextmanager
async def deep_pods(api: RestClient, *names: str) -> AsyncIterator[None]:
    """Create pods with deep managedFields, and delete them when the block is left."""
    for name in names:
        await create_deep(api, PODS, pod_manifest(name, neuron=1))
    try:
        yield
    finally:
        for name in names:
            async with api._session.delete(api._url(f"{PODS}/{name}", {"gracePeriodSeconds": 0})) as answer:
                assert answer.status == 200


async def test_deep_managed_fields_cost_nothing(account: Path, empty: RestClient) -> None:
    """In the first list and in the watch, such pods are bound like all others."""
    await create_node(empty, node_manifest("inf2", "inf2.24xlarge"))
    async with deep_pods(empty, "listed"), run_scheduler(account) as scheduler:
        await scheduler.line(BOUND, 'pod="default/listed"')
        async with deep_pods(empty, "watched"):
            await scheduler.line(BOUND, 'pod="default/watched"')
            metrics = await scheduler.metrics()
            assert metrics['scheduler_cache_size{type="pods"}'] == 2
            assert metrics["neuron_scheduler_unknown_holders"] == 0
            assert not any("malformed_objects" in name for name in metrics)
        assert await scheduler.stop() == 0
