"""
A stand-in for the kubelets of simulated nodes: bound pods run, terminating pods end.

Does only what the tests need: no containers, no probes, no node status.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import Final

import anyio
import anyio.abc
import attrs

from tests.control_plane.rest import STRATEGIC, ApiError, Object, RestClient
from tests.simulation.oracles.change import Key
from tests.simulation.oracles.claims import keys_of, problems_of

PAUSE: Final = 0.1  # seconds


@attrs.define(eq=False)
class FakeKubelet:
    """
    All kubelets in one; `task_group.start_soon(FakeKubelet(api).run)`.

    Attributes:
        obey_grace: let a terminating pod live for its grace period, rather than end at once.
    """

    api: RestClient
    obey_grace: bool = False
    _ending: set[str] = attrs.field(factory=set, init=False)

    async def run(self) -> None:
        async with anyio.create_task_group() as ends:
            while True:
                await _insist(partial(self._follow, ends))

    async def _follow(self, ends: anyio.abc.TaskGroup) -> None:
        """Serve the bound pods of a list, and then those of a watch until it ends."""
        bound = {"fieldSelector": "spec.nodeName!="}
        listing = await self.api.get("/api/v1/pods", **bound)
        for pod in listing["items"]:
            await self._serve(pod, ends)
        version = listing["metadata"]["resourceVersion"]
        async with aclosing(self.api.watch("/api/v1/pods", version, **bound)) as events:
            async for kind, pod in events:
                if kind != "DELETED":
                    await self._serve(pod, ends)

    async def _serve(self, pod: Object, ends: anyio.abc.TaskGroup) -> None:
        """Move one pod one step further."""
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata and metadata["uid"] not in self._ending:
            self._ending.add(metadata["uid"])
            ends.start_soon(self._end, pod)
        elif (
            "deletionTimestamp" not in metadata and pod["status"].get("phase") == "Pending" and await self._prepare(pod)
        ):
            body = {"status": running(pod)}
            with unless_outrun():
                await _insist(partial(self.api.patch, f"{path_of(pod)}/status", body, content_type=STRATEGIC))

    async def _prepare(self, pod: Object) -> bool:
        """Return whether a pod has its claims as a kubelet needs them."""
        claims = dict[Key, Object]()
        for key, _ in keys_of(pod):
            with unless_outrun():
                claims[key] = await self.api.get(
                    f"/apis/resource.k8s.io/v1/namespaces/{key[0]}/resourceclaims/{key[1]}"
                )
        return not any(problems_of(pod, claims.get))

    async def _end(self, pod: Object) -> None:
        """Delete a terminating pod for good, once its grace is over."""
        if self.obey_grace:
            await anyio.sleep(pod["metadata"].get("deletionGracePeriodSeconds", 0))
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        with unless_outrun():
            await _insist(partial(self.api.delete, path_of(pod), body))


async def _insist(send: Callable[[], Awaitable[object]]) -> None:
    """Try again, as a kubelet does, while the API server cannot answer because it has lost etcd."""
    while True:
        try:
            await send()
        except ApiError as error:
            if error.status < 500:
                raise
            await anyio.sleep(PAUSE)
        else:
            return


@contextmanager
def unless_outrun() -> Iterator[None]:
    """Ignore a pod that another client deleted or changed first: the watch reports it."""
    try:
        yield
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def path_of(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def running(pod: Object) -> Object:
    """Return the status of a pod whose containers all run."""
    started = {"ready": True, "started": True, "restartCount": 0, "imageID": "", "state": {"running": {}}}
    containers = [
        {"name": container["name"], "image": container["image"], **started} for container in pod["spec"]["containers"]
    ]
    conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "ContainersReady", "Ready")]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": containers}
