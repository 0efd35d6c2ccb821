"""
What the tests of controllers do in place of a user and of a kubelet, on any API server.
"""

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from tests.support.sandbox_api import Api

STRATEGIC = "application/strategic-merge-patch+json"
LIMIT = 60


async def until(api: Api, path: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the object or list at a path once the condition holds."""
    collection, _, name = path.rpartition("/") if path.count("/") in {1, 4} else (path, "", "")
    with anyio.fail_after(LIMIT):
        while True:
            listed = await api.got(collection)
            found = next((item for item in listed["items"] if item["metadata"]["name"] == name), {}) if name else listed
            if holds(found):
                return found
            async with api.watch(collection, resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
                await watch.next()


async def pods_of(api: Api, count: int, *, image: str = "") -> list[dict[str, Any]]:
    """Return the pods once there are so many that are not being deleted, all with the image."""

    def wanted(listed: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            pod
            for pod in listed["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] not in {"Succeeded", "Failed"}
            and image in pod["spec"]["containers"][0]["image"]
        ]

    return wanted(await until(api, "pods", lambda listed: len(wanted(listed)) == count))


async def report(api: Api, pod: dict[str, Any], phase: str) -> None:
    """Write the status of a pod as its kubelet would."""
    ready = {"type": "Ready", "status": str(phase == "Running")}
    path = f"pods/{pod['metadata']['name']}/status"
    reply = await api.call("PATCH", path, {"status": {"phase": phase, "conditions": [ready]}}, media_type=STRATEGIC)
    assert reply.status in {200, 404}, reply


def condition(obj: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """Return status and reason of a condition; empty if there is none."""
    for condition in obj.get("status", {}).get("conditions") or []:
        if condition["type"] == kind:
            return condition["status"], condition["reason"]
    return "", ""


def owner_of(obj: Mapping[str, Any]) -> str:
    """Return the name of the first owner; empty if there is none."""
    return next((reference["name"] for reference in obj["metadata"].get("ownerReferences") or []), "")
