"""
How long a pod of another namespace waits beside what one tenant creates: `benchmarks.hostile --tenants`.

The process as its Deployment runs it, on a real kube-apiserver with 100 simulated machines. Every 0.3 s a small pod of
another namespace is created, and deleted when it is bound, so there are events all the time. Beside it a tenant creates
its pods. Measured from outside: how long each small pod waits, how long `/livez` takes, and whether the process lives.
"""

import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import anyio
import attrs

from benchmarks.contest.arena import Arena, run_arena
from benchmarks.contest.workloads import BACKGROUND, HIGH_PRIORITY, node_name
from tests.control_plane.objects import create_all, create_pod, pod_manifest
from tests.control_plane.rest import Object
from tests.end_to_end.process import ACQUIRED, SYNCED, SchedulerProcess, run_scheduler

NODES: Final = 100
PERIOD: Final = 0.3
OTHERS: Final = f"/api/v1/namespaces/{BACKGROUND}/pods"
TENANT: Final = "/api/v1/namespaces/default/pods"
_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
_COUNT: Final = "pod-group.scheduling.sigs.k8s.io/min-available"


@attrs.frozen
class Case:
    """
    What one tenant creates.

    Attributes:
        bound: how many pods of another owner have a node before.
        pods: yields the tenant's pods.
        churns: whether each second one of its groups is deleted and comes again.
    """

    bound: int
    pods: Callable[[], Iterator[Object]]
    churns: bool = False


def _terms(of: int, count: int) -> list[Object]:
    """Return so many terms that no other pod has, each of which every bound pod matches."""
    absent = [[{"key": f"x{of}-{number}", "operator": "DoesNotExist"}] for number in range(count)]
    return [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": expressions}}
        for expressions in absent
    ]


def _anti_affinity(of: int, count: int, *, required: bool) -> Object:
    if required:
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _terms(of, count)}}
    weighted = [{"weight": 1, "podAffinityTerm": term} for term in _terms(of, count)]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}


def heavy(count: int, terms: int, *, least: int = 0, required: bool = True, **spec: Any) -> Iterator[Object]:
    """Yield pods with many terms, of one group that needs `least`, or each of a group of one."""
    for number in range(count):
        labels = {_NAME: "heavy" if least > 1 else f"heavy-{number}", _COUNT: str(least)} if least else {}
        affinity = _anti_affinity(number, terms, required=required)
        yield pod_manifest(f"heavy-{number}", labels=labels, requests={"cpu": "10m"}, affinity=affinity, **spec)


def differing(groups: int) -> Iterator[Object]:
    """Yield groups of 62 members that differ, and two that belong on a machine with room for those of two groups."""
    for group, number in itertools.product(range(groups), range(64)):
        yield member(f"g{group}", number)


def member(group: str, number: int) -> Object:
    """Return one of the members of such a group."""
    labels, requests = {_NAME: group, _COUNT: "64"}, {"cpu": f"{100 + number}m"}
    pod = pod_manifest(f"{group}-{number}", neuron=4, labels=labels, requests=requests)
    if number > 61:
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node_name(0)}
    return pod


def wordy() -> Iterator[Object]:
    """Yield pods whose affinity to each other names 900 long values."""
    values = [f"{number:063}" for number in range(900)]
    selector = {"matchExpressions": [{"key": "job", "operator": "In", "values": values}]}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for number in range(3):
        yield pod_manifest(f"wordy-{number}", neuron=16, labels={"job": values[0]}, affinity=affinity)


CASES: Final[Mapping[str, Case]] = {
    "nothing": Case(0, lambda: iter(())),
    "preferred terms in a group": Case(8_000, lambda: heavy(20, 100, least=20, required=False)),
    "groups of one with required terms": Case(6_000, lambda: heavy(20, 100, least=1)),
    "24 groups that differ": Case(0, lambda: differing(24)),
    "24 groups, one anew each second": Case(0, lambda: differing(24), churns=True),
    "long names": Case(0, wordy),
    "victims for 100 terms": Case(6_000, lambda: heavy(4, 100, priorityClassName=HIGH_PRIORITY)),
    "victims for 16 terms": Case(6_000, lambda: heavy(4, 16, priorityClassName=HIGH_PRIORITY)),
}


@attrs.define(eq=False)
class Seen:
    """
    What was seen beside a tenant, in seconds.

    Attributes:
        created, bound: when each small pod was, by name; it is created when the API server has said so.
        livez: the answers.
        longest_message: bytes of the longest condition of the tenant's pods.
    """

    created: dict[str, float] = attrs.field(factory=dict)
    bound: dict[str, float] = attrs.field(factory=dict)
    livez: list[float] = attrs.field(factory=list)
    longest_message: int = 0
    ended: bool = False

    def line(self, name: str, until: float) -> str:
        """Return the figures; a pod that still waits has waited until the end."""
        waits = sorted(max(0.0, self.bound.get(pod, until) - created) for pod, created in self.created.items())
        middle, longest = (waits[len(waits) // 2], waits[-1]) if waits else (0.0, 0.0)
        end = "  ENDED" if self.ended else ""
        unbound = len(self.created.keys() - self.bound.keys())
        return (
            f"{name:36}{len(waits):6}{unbound:9}{middle:9.2f}{longest:9.2f}"
            f"{max(self.livez, default=0.0):9.2f}{self.longest_message:9}{end}"
        )


async def measure(arena: Arena, case: Case, seconds: float) -> tuple[Seen, float]:
    """Run one case on an empty cluster; return what was seen, and when it ended."""
    await create_all(partial(create_pod, arena.api), map(_bound, range(case.bound)))
    seen = Seen()
    async with run_scheduler(arena.account, "-v=2") as scheduler, anyio.create_task_group() as tasks:
        await scheduler.line(ACQUIRED)
        await scheduler.line(SYNCED)
        tasks.start_soon(_watch, arena, seen)
        tasks.start_soon(_create_small_pods, arena, seen)
        tasks.start_soon(_probe, scheduler, seen)
        tasks.start_soon(_wait_for_end, scheduler, seen)
        await create_all(partial(create_pod, arena.api), case.pods())
        with anyio.move_on_after(seconds):
            await (_churn(arena) if case.churns else anyio.sleep_forever())
        until = time.monotonic()
        messages = [_message(pod) for pod in (await arena.api.get(TENANT))["items"]]
        seen.longest_message = max(map(len, messages), default=0)
        tasks.cancel_scope.cancel()
    return seen, until


def _bound(number: int) -> Object:
    return pod_manifest(f"bound-{number}", requests={"cpu": "10m"}, nodeName=node_name(number % NODES))


def _message(pod: Object) -> str:
    conditions = pod.get("status", {}).get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


async def _create_small_pods(arena: Arena, seen: Seen) -> None:
    for number in itertools.count():
        name = f"small-{number}"
        await create_pod(arena.api, pod_manifest(name, namespace=BACKGROUND, requests={"cpu": "10m"}))
        seen.created[name] = time.monotonic()
        await anyio.sleep(PERIOD)


async def _watch(arena: Arena, seen: Seen) -> None:
    """Note when the small pods are bound, and delete them then."""
    version = (await arena.api.get(OTHERS))["metadata"]["resourceVersion"]
    events: AsyncIterator[tuple[str, Object]] = arena.api.watch(OTHERS, version)
    async with aclosing(events), anyio.create_task_group() as tasks:  # type: ignore[type-var]  # it is a generator
        async for _, pod in events:
            name = pod["metadata"]["name"]
            if "nodeName" in pod["spec"] and name not in seen.bound:
                seen.bound[name] = time.monotonic()
                tasks.start_soon(partial(arena.api.delete, f"{OTHERS}/{name}", gracePeriodSeconds=0))


async def _probe(scheduler: SchedulerProcess, seen: Seen) -> None:
    while not seen.ended:
        began = time.monotonic()
        with anyio.move_on_after(30.0):
            try:
                await scheduler.get("/livez")
            except OSError:
                return
        seen.livez.append(time.monotonic() - began)
        await anyio.sleep(0.1)


async def _wait_for_end(scheduler: SchedulerProcess, seen: Seen) -> None:
    await scheduler.ended(within=3600.0)
    seen.ended = True


async def _churn(arena: Arena) -> None:
    """Delete a group each second, and create one with another name."""
    for number in itertools.count():
        await anyio.sleep(1.0)
        old, new = f"g{number}" if number < 24 else f"new{number - 24}", f"new{number}"
        await arena.api.delete(TENANT, labelSelector=f"{_NAME}={old}", gracePeriodSeconds=0)
        await create_all(partial(create_pod, arena.api), (member(new, each) for each in range(64)))


async def compare(names: list[str], seconds: float) -> None:
    """Run the cases and print their figures."""
    print(f"{'seconds':36}{'pods':>6}{'unbound':>9}{'median':>9}{'longest':>9}{'/livez':>9}{'message':>9}")
    for name in names:
        async with run_arena(nodes=NODES, policies=False) as arena:
            seen, until = await measure(arena, CASES[name], seconds)
        print(seen.line(name, until), flush=True)
