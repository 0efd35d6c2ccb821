"""
What tests of the whole process do to the cluster as its administrator, and what they read from it afterwards.

The cores of a pod are read here from AWS's annotation alone, independently of `neuron_scheduler.neuron.annotations`.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio

from tests.control_plane.fake_kubelet import FakeKubelet
from tests.control_plane.objects import (
    MACHINES,
    NEURON,
    NEURONCORE,
    create_node,
    create_pod,
    node_manifest,
    pod_manifest,
)
from tests.control_plane.rest import Object, RestClient
from tests.end_to_end.process import SchedulerProcess, until

PODS: Final = "/api/v1/namespaces/default/pods"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE: Final = f"{LEASES}/my-scheduler"
TYPE_LABEL: Final = "node.kubernetes.io/instance-type"


def on(instance_type: str) -> dict[str, Any]:
    """Return the part of a pod's spec that pins it to an instance type."""
    return {"nodeSelector": {TYPE_LABEL: instance_type}}


async def clear(api: RestClient) -> None:
    """Delete pods, nodes, events and our Lease at once, without grace."""
    for collection in (PODS, "/api/v1/nodes", EVENTS):
        await api.delete(collection, gracePeriodSeconds=0)
    await api.request("DELETE", LEASE)


async def clear_below(scheduler: SchedulerProcess, api: RestClient) -> None:
    """Delete pods, nodes and events while a scheduler runs, and return when it has seen that."""
    for collection in (PODS, "/api/v1/nodes", EVENTS):
        await api.delete(collection, gracePeriodSeconds=0)
    await scheduler.until(
        lambda metrics: (
            all(metrics[f'scheduler_cache_size{{type="{kind}"}}'] == 0 for kind in ("nodes", "pods"))
            and all(metrics[name] == 0 for name in metrics if name.startswith("scheduler_pending_pods{"))
        )
    )


async def add_nodes(scheduler: SchedulerProcess, api: RestClient, **types: str) -> None:
    """Create nodes, `name=type`, one after the other, and return when the scheduler has them; `_` becomes `.`."""
    before = len((await api.get("/api/v1/nodes"))["items"])
    for name, instance_type in types.items():
        await create_node(api, node_manifest(name, instance_type))
    await scheduler.until(lambda metrics: metrics['scheduler_cache_size{type="nodes"}'] == before + len(types))


async def add_priority_classes(api: RestClient, **values: int) -> None:
    """
    Create priority classes, `name=value`; the tests of a session share them, and a value never changes.

    Returns when pods may name them: admission looks a class up in a watch of its own, which may be late.
    """
    for name, value in values.items():
        manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await api.apply(manifest | {"value": value})
        pod = pod_manifest(f"of-class-{name}", priorityClassName=name)
        await until(partial(_admits, api, pod))


async def _admits(api: RestClient, pod: Object) -> bool:
    status, _ = await api.request("POST", PODS, pod, dryRun="All")
    return status == 201


async def placed(api: RestClient, name: str, **pod: Any) -> Object:
    """Create a pod (if fields are given) and return it once it is bound."""
    if pod:
        await create_pod(api, pod_manifest(name, **pod))
    return await api.wait_for(f"{PODS}/{name}", lambda pod: "nodeName" in pod["spec"])


async def refused(api: RestClient, name: str, *, saying: str = "", **pod: Any) -> Object:
    """Create a pod (as `placed`) and return its condition once it is False, with this text in its message."""
    if pod:
        await create_pod(api, pod_manifest(name, **pod))

    def met(pod: Object) -> bool:
        condition = condition_of(pod)
        return condition.get("status") == "False" and saying in condition.get("message", "")

    return condition_of(await api.wait_for(f"{PODS}/{name}", met))


async def all_placed(api: RestClient, names: Iterable[str]) -> dict[str, Object]:
    """Wait until all these pods are bound; return all pods by name."""
    wanted = {f"default/{name}" for name in names}
    bound = await api.wait_until(
        PODS,
        lambda pods: wanted <= {key for key, pod in pods.items() if "nodeName" in pod["spec"]},
        within=60,
    )
    return {pod["metadata"]["name"]: pod for pod in bound.values()}


async def remove(api: RestClient, *names: str) -> None:
    """Delete pods at once, as when their kubelet has ended them."""
    for name in names:
        await api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)


def _any(_: Object) -> bool:
    return True


async def events_of(
    api: RestClient, name: str, reason: str, *, count: int = 1, met: Callable[[Object], bool] = _any
) -> list[Object]:
    """Return the Events about a pod with this reason that meet a condition, as soon as there are enough."""

    def about(events: dict[str, Object]) -> list[Object]:
        return [
            event
            for event in events.values()
            if event["regarding"]["name"] == name and event["reason"] == reason and met(event)
        ]

    return about(await api.wait_until(EVENTS, lambda events: len(about(events)) >= count))


def condition_of(pod: Object) -> Object:
    """Return the PodScheduled condition of a pod; empty if there is none."""
    conditions = pod["status"].get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})


def ids_of(pod: Object) -> tuple[int, ...]:
    """Return the ids that the device plugin would read."""
    return tuple(int(number) for number in pod["metadata"]["annotations"]["AWS_NEURON_IDS"].split(","))


def held_cores(pods: Iterable[Object], types: Mapping[str, str]) -> dict[str, int]:
    """
    Return the mask of used cores on each node; check that no core is used twice and that each set is as requested.

    Args:
        pods: only bound ones count.
        types: instance type by node name.
    """
    used = dict.fromkeys(types, 0)
    for pod in pods:
        node = pod["spec"].get("nodeName")
        if node is None:
            continue
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        _, _, devices, cores = MACHINES[types[node]]
        width = cores // devices if NEURON in limits else 1
        ids = ids_of(pod)
        assert len(ids) == int(limits.get(NEURON) or limits[NEURONCORE])
        assert ids == tuple(range(ids[0], ids[0] + len(ids))), "a set is contiguous and ascending"
        mask = sum(((1 << width) - 1) << i * width for i in ids)
        assert mask < 1 << cores
        assert not mask & used[node], f"{pod['metadata']['name']} holds a core of {node} that another pod holds"
        used[node] |= mask
    return used


@asynccontextmanager
async def kubelets(api: RestClient) -> AsyncIterator[None]:
    """Let bound pods run and terminating ones end, until the block is left."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(FakeKubelet(api).run)
        yield
        tasks.cancel_scope.cancel()
