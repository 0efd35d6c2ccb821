"""
One run: the pods of a workload, one contender, and the observed figures.

Pods wait before the contender starts, so its own start is its warm-up; only paced pods come later. It does not
interpret: an incomplete run is recorded like any other.
"""

import time
from collections import Counter
from itertools import islice
from typing import Final

import anyio
import anyio.abc

from benchmarks.contest import records
from benchmarks.contest.arena import EVENTS, PODS, Arena
from benchmarks.contest.contenders import CONTENDERS
from benchmarks.contest.observer import Observer
from benchmarks.contest.workloads import WORKLOADS, Workload, node, pod_name

LONGEST_START: Final = 90.0  # seconds until the first bind
LONGEST_PAUSE: Final = 15.0  # seconds without a bind after which the contender has no place for the rest
EVENTS_SETTLED: Final = 1.0  # seconds without another Event after which all are written
LONGEST_EVENTS: Final = 60.0
PACE: Final = 100.0  # pods per second where they arrive one by one
CHURN: Final = 100.0  # bound pods deleted per second where there is churn
CHURN_NODE: Final = 99_999  # the number of the node that comes and goes, once a second


async def measure(arena: Arena, cell: records.Cell, *, pods: int, label: str) -> records.Record:
    """Run one contender on one workload, and return the record; clear the arena."""
    workload = WORKLOADS[cell.workload]
    contender = CONTENDERS[cell.contender].make(arena, workload)
    if workload.filled:
        await arena.fill(cell.nodes)
    if workload.by_claims:
        await arena.publish(cell.nodes)
    version = await arena.create_pods(() if workload.paced else workload.manifests(pods))
    first = []

    def cpu() -> tuple[float, float]:
        return contender.cpu_seconds(), arena.server_cpu()

    observer = Observer(plane=arena.plane, on_first=lambda: first.append(cpu()))
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(observer.run, version)
            async with contender.running():
                latencies = await _contest(arena, workload, observer, pods)
                at_last = cpu()
                event_seconds = await _last_event(arena, observer) if contender.events else None
                before = first[0] if first else at_last
                record = records.Record(
                    cell=cell,
                    label=label,
                    when=records.now(),
                    pods=workload.bindable(pods),
                    bound=len(observer.bound),
                    start_seconds=min(observer.bound.values()) - contender.started_at if observer.bound else None,
                    bind_seconds=observer.last - min(observer.bound.values(), default=observer.last),
                    event_seconds=event_seconds,
                    events=await _reasons(arena),
                    events_dropped=await contender.events_dropped(),
                    cpu_seconds=contender.cpu_seconds() - before[0],
                    cpu_bind_seconds=at_last[0] - before[0],
                    server_cpu_seconds=at_last[1] - before[1],
                    peak_bytes=contender.peak_bytes(),
                    latencies=latencies,
                    machine=records.machine(),
                )
            tasks.cancel_scope.cancel()
        return record
    finally:
        await arena.clear()


async def _contest(arena: Arena, workload: Workload, observer: Observer, pods: int) -> tuple[float, ...]:
    """Return when all pods that fit are bound; the latencies of paced pods, nothing for others."""
    if workload.paced:
        return await _paced(arena, workload, observer, pods)
    async with anyio.create_task_group() as tasks:
        if workload.churn:
            tasks.start_soon(_delete_bound, arena, observer)
            tasks.start_soon(_toggle_node, arena)
        await observer.wait_for(workload.bindable(pods), start=LONGEST_START, pause=LONGEST_PAUSE)
        tasks.cancel_scope.cancel()
    return ()


async def _paced(arena: Arena, workload: Workload, observer: Observer, pods: int) -> tuple[float, ...]:
    """Create pods at a fixed rate; the first one, which shows that the contender is running, does not count."""
    created: dict[str, float] = {}
    manifests = workload.manifests(pods)
    await arena.create(next(manifests))
    await observer.wait_for(1, start=LONGEST_START, pause=LONGEST_PAUSE)

    async def create(number: int, begin: float) -> None:
        await anyio.sleep_until(begin + number / PACE)
        created[pod_name(number)] = time.perf_counter()
        await arena.create(workload.pod(number))

    begin = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        for number in range(1, workload.count(pods)):
            tasks.start_soon(create, number, begin)
    await observer.wait_for(workload.count(pods), start=LONGEST_START, pause=LONGEST_PAUSE)
    return tuple(round(observer.bound[name] - at, 6) for name, at in created.items() if name in observer.bound)


async def _delete_bound(arena: Arena, observer: Observer) -> None:
    """Delete bound pods, the longest bound first, at a fixed rate until cancelled."""
    deleted = 0
    while True:
        await anyio.sleep(1 / CHURN)
        if deleted < len(observer.bound):
            name = next(islice(observer.bound, deleted, None))
            deleted += 1
            await arena.api.delete(f"{PODS}/{name}")


async def _toggle_node(arena: Arena) -> None:
    """Create and delete a node until cancelled; at the end it is deleted."""
    manifest = node(CHURN_NODE)
    path = f"/api/v1/nodes/{manifest['metadata']['name']}"
    try:
        while True:
            await arena.api.post("/api/v1/nodes", manifest)
            await anyio.sleep(0.5)
            await arena.api.delete(path)
            await anyio.sleep(0.5)
    finally:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            await arena.api.request("DELETE", path)


async def _last_event(arena: Arena, observer: Observer) -> float:
    """Wait until no further Event comes; return the seconds from the first bind to the last Event, or bind."""
    first = min(observer.bound.values(), default=observer.last)
    count, at = await arena.event_count(), observer.last
    with anyio.move_on_after(LONGEST_EVENTS):
        while (now := time.perf_counter()) - at < EVENTS_SETTLED or count < len(observer.bound):
            await anyio.sleep(0.05)
            current = await arena.event_count()
            if current != count:
                count, at = current, now
    return at - first


async def _reasons(arena: Arena) -> dict[str, int]:
    listing = await arena.api.get(EVENTS)
    return dict(Counter(event["reason"] for event in listing["items"]))
