"""
How Deployments, ReplicaSets, Jobs and the garbage collector behave, with kube-controller-manager or the sandbox's own.

No kubelet runs: each behaviour writes the status of the pods itself.
"""

from collections.abc import Callable, Mapping
from typing import Any

import anyio

from tests.support.sandbox_api import Api, names

DEPLOYMENTS, REPLICA_SETS, JOBS = "apis/apps/v1/deployments", "apis/apps/v1/replicasets", "apis/batch/v1/jobs"
LABELS = {"app": "web"}


def _deployment(**spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main", "image": "example/web:1"}]}}
    return {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": LABELS}, "template": template, **spec}}


def _job(**spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "example/batch:1"}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {"metadata": {"name": "batch"}, "spec": {"template": template, **spec}}


async def a_deployment_makes_a_replica_set_and_pods(api: Api) -> None:
    """Each owns the next, and the status counts what is ready."""
    made = await api.made(DEPLOYMENTS, _deployment(replicas=2))
    assert made["metadata"]["generation"] == 1
    assert made["spec"]["strategy"]["type"] == "RollingUpdate"
    pods = await _pods_of(api, 2)
    (replica_set,) = (await api.got(REPLICA_SETS))["items"]
    template_hash = replica_set["metadata"]["labels"]["pod-template-hash"]
    assert replica_set["metadata"]["name"] == f"web-{template_hash}"
    assert owner_of(replica_set) == "web"
    for pod in pods:
        assert pod["metadata"]["name"].startswith(f"web-{template_hash}-")
        assert pod["metadata"]["labels"] == {**LABELS, "pod-template-hash": template_hash}
        assert owner_of(pod) == replica_set["metadata"]["name"]
    waiting = await _until(api, f"{DEPLOYMENTS}/web", lambda found: found.get("status", {}).get("replicas") == 2)
    assert waiting["status"]["unavailableReplicas"] == 2
    for pod in pods:
        await _report(api, pod, "Running")
    done = await _until(api, f"{DEPLOYMENTS}/web", lambda found: found["status"].get("availableReplicas") == 2)
    status = done["status"]
    assert (status["replicas"], status["updatedReplicas"], status["availableReplicas"]) == (2, 2, 2)
    assert status["observedGeneration"] == 1


async def a_lost_pod_is_replaced(api: Api) -> None:
    """A new one of another name."""
    await api.made(DEPLOYMENTS, _deployment(replicas=1))
    (pod,) = await _pods_of(api, 1)
    name = pod["metadata"]["name"]
    assert (await api.call("DELETE", f"pods/{name}")).status == 200
    await _until(api, "pods", lambda listed: len(listed["items"]) == 1 and names(listed) != [name])


async def with_recreate_the_old_pods_go_first(api: Api) -> None:
    """The new pods come when the old ones are gone."""
    await api.made(DEPLOYMENTS, _deployment(replicas=1, strategy={"type": "Recreate"}))
    (old,) = await _pods_of(api, 1)
    await api.bind(old["metadata"]["name"])  # so that its deletion waits for a kubelet
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example/web:2"}]}}}}
    assert (await api.call("PATCH", f"{DEPLOYMENTS}/web", image, media_type=STRATEGIC)).status == 200
    path = f"pods/{old['metadata']['name']}"
    await _until(api, path, lambda found: "deletionTimestamp" in found["metadata"])
    assert len((await api.got("pods"))["items"]) == 1
    assert (await api.call("DELETE", path, {"gracePeriodSeconds": 0})).status == 200
    await _pods_of(api, 1, image="web:2")


async def what_a_deployment_may_not_be(api: Api) -> None:
    """422 for a selector that does not fit, a missing image, a restart policy; the selector cannot change."""
    other = {"matchLabels": {"app": "other"}}
    bare = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "main"}]}}
    once = {
        "metadata": {"labels": LABELS},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example/web:1"}]},
    }
    for spec, want in (
        ({"selector": other}, "`selector` does not match template `labels`"),
        ({"selector": None}, "spec.selector"),
        ({"template": bare}, "spec.template.spec.containers[0].image"),
        ({"template": once}, "spec.template.spec.restartPolicy"),
        ({"replicas": -1}, "spec.replicas"),
    ):
        reply = await api.call("POST", DEPLOYMENTS, _deployment(**spec))
        assert reply.status == 422, (spec, reply)
        assert want in reply.body["message"]
    assert (await api.call("POST", DEPLOYMENTS, _deployment(replicas="2"))).status == 400
    assert (await api.call("POST", JOBS, _job(completions="1"))).status == 400
    await api.made(DEPLOYMENTS, _deployment())
    labels = {"app": "web", "tier": "x"}
    change = {"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}}
    reply = await api.call("PATCH", f"{DEPLOYMENTS}/web", change, media_type=STRATEGIC)
    assert (reply.status, "field is immutable" in reply.body["message"]) == (422, True)


async def a_job_completes(api: Api) -> None:
    """No more pods than its parallelism at once, until so many have succeeded."""
    made = await api.made(JOBS, _job(completions=3, parallelism=2))
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert (made["spec"]["backoffLimit"], made["spec"]["completionMode"]) == (6, "NonIndexed")
    for pod in await _pods_of(api, 2):
        assert pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "batch"
        assert owner_of(pod) == "batch"
        await _report(api, pod, "Succeeded")
    (last,) = await _pods_of(api, 1)
    running = await _until(api, f"{JOBS}/batch", lambda found: found["status"].get("succeeded") == 2)
    assert condition(running, "Complete") == ("", "")
    await _report(api, last, "Succeeded")
    done = await _until(api, f"{JOBS}/batch", lambda found: condition(found, "Complete")[0] == "True")
    assert (done["status"]["succeeded"], done["status"].get("active", 0)) == (3, 0)
    assert done["status"]["startTime"] <= done["status"]["completionTime"]
    again = {"spec": {"completions": 4}}
    reply = await api.call("PATCH", f"{JOBS}/batch", again, media_type=STRATEGIC)
    assert (reply.status, "field is immutable" in reply.body["message"]) == (422, True)


async def a_job_fails_at_its_backoff_limit(api: Api) -> None:
    """With a limit of 0 the first failure is the last, and the other pods are deleted."""
    await api.made(JOBS, _job(backoffLimit=0, completions=2, parallelism=2))
    first, _ = await _pods_of(api, 2)
    await _report(api, first, "Failed")
    done = await _until(api, f"{JOBS}/batch", lambda found: condition(found, "Failed")[0] == "True")
    assert condition(done, "Complete") == ("", "")
    await _pods_of(api, 0)


async def what_is_owned_goes_with_its_owner(api: Api) -> None:
    """In the background: the owner first, then its ReplicaSet and pods; a Job's pods too."""
    await api.made(DEPLOYMENTS, _deployment(replicas=2))
    await api.made(JOBS, _job())
    await _pods_of(api, 3)
    for path in (f"{DEPLOYMENTS}/web", f"{JOBS}/batch"):
        assert (await api.call("DELETE", path, {"propagationPolicy": "Background"})).status == 200
        assert (await api.call("GET", path)).status == 404
    await _until(api, REPLICA_SETS, lambda listed: not listed["items"])
    await _until(api, "pods", lambda listed: not listed["items"])


STRATEGIC = "application/strategic-merge-patch+json"
LIMIT = 60


async def _until(api: Api, path: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
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


async def _pods_of(api: Api, count: int, *, image: str = "") -> list[dict[str, Any]]:
    """Return the pods once there are so many that are not being deleted, all with the image."""

    def wanted(listed: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            pod
            for pod in listed["items"]
            if "deletionTimestamp" not in pod["metadata"]
            and pod["status"]["phase"] not in {"Succeeded", "Failed"}
            and image in pod["spec"]["containers"][0]["image"]
        ]

    return wanted(await _until(api, "pods", lambda listed: len(wanted(listed)) == count))


async def _report(api: Api, pod: dict[str, Any], phase: str) -> None:
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
