"""
How DaemonSets behave, with kube-controller-manager or the sandbox's own controllers. No kubelet and no scheduler runs.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.sandbox_api import Api
from tests.support.workloads import STRATEGIC, owner_of, pods_of, report, until

DAEMON_SETS = "apis/apps/v1/daemonsets"
MERGE = "application/merge-patch+json"


def _daemon_set(api: Api) -> dict[str, Any]:
    labels = {"app": "daemon"}
    spec = {
        "nodeSelector": {"behaviour": api.namespace},
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "example/daemon:1"}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {"metadata": {"name": "daemon"}, "spec": {"selector": {"matchLabels": labels}, "template": template}}


@asynccontextmanager
async def _nodes(api: Api, *chosen: bool) -> AsyncIterator[list[str]]:
    """Create nodes, chosen by the DaemonSet or not; delete them at the end."""
    names = [f"{api.namespace}-{number}" for number in range(len(chosen))]
    for name, is_chosen in zip(names, chosen, strict=True):
        labels = {"behaviour": api.namespace if is_chosen else "none"}
        await api.made("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    try:
        yield names
    finally:
        for name in names:
            await api.call("DELETE", f"/api/v1/nodes/{name}")


def _node_of(pod: dict[str, Any]) -> str:
    """Return the one node that the affinity of a daemon's pod allows."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    assert (field["key"], field["operator"]) == ("metadata.name", "In")
    (name,) = field["values"]
    return str(name)


async def a_daemon_set_has_a_pod_on_each_node_that_it_chooses(api: Api) -> None:
    """Also on a node that is chosen later; not on one that is no longer."""
    async with _nodes(api, True, True, False) as (first, second, third):
        await api.made(DAEMON_SETS, _daemon_set(api))
        pods = await pods_of(api, 2)
        assert sorted(map(_node_of, pods)) == [first, second]
        for pod in pods:
            assert owner_of(pod) == "daemon"
            assert pod["metadata"]["labels"]["controller-revision-hash"]
            await api.bind(pod["metadata"]["name"], _node_of(pod))
            await report(api, pod, "Running")

        def counts(found: dict[str, Any]) -> tuple[int, int, int]:
            status = found.get("status", {})
            fields = ("desiredNumberScheduled", "currentNumberScheduled", "numberAvailable")
            return tuple(status.get(field, 0) for field in fields)

        ready = await until(api, f"{DAEMON_SETS}/daemon", lambda found: counts(found) == (2, 2, 2))
        assert ready["status"]["updatedNumberScheduled"] == 2
        chosen = {"metadata": {"labels": {"behaviour": api.namespace}}}
        assert (await api.call("PATCH", f"/api/v1/nodes/{third}", chosen, media_type=MERGE)).status == 200
        (late,) = [pod for pod in await pods_of(api, 3) if _node_of(pod) == third]
        await api.bind(late["metadata"]["name"], third)
        tainted = {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}
        assert (await api.call("PATCH", f"/api/v1/nodes/{first}", tainted, media_type=MERGE)).status == 200
        dropped = {"metadata": {"labels": {"behaviour": "none"}}}
        assert (await api.call("PATCH", f"/api/v1/nodes/{third}", dropped, media_type=MERGE)).status == 200
        assert sorted(_node_of(pod) for pod in await pods_of(api, 2)) == [first, second], "a new taint deletes nobody"


async def a_new_template_of_a_daemon_set_goes_from_node_to_node(api: Api) -> None:
    """The next old pod goes when the new one before it is ready; an ended pod is replaced too."""
    async with _nodes(api, True, True):
        await api.made(DAEMON_SETS, _daemon_set(api))
        for pod in await pods_of(api, 2):
            await report(api, pod, "Running")
        await until(api, f"{DAEMON_SETS}/daemon", lambda found: found.get("status", {}).get("numberAvailable") == 2)
        image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "example/daemon:2"}]}}}}
        assert (await api.call("PATCH", f"{DAEMON_SETS}/daemon", image, media_type=STRATEGIC)).status == 200
        (first,) = await pods_of(api, 1, image="daemon:2")
        assert len(await pods_of(api, 1, image="daemon:1")) == 1
        await report(api, first, "Running")
        for pod in await pods_of(api, 2, image="daemon:2"):
            await report(api, pod, "Running")

        def done(found: dict[str, Any]) -> bool:
            status = found["status"]
            counts = status.get("updatedNumberScheduled"), status.get("numberAvailable")
            return counts == (2, 2) and status["observedGeneration"] == found["metadata"]["generation"]

        await until(api, f"{DAEMON_SETS}/daemon", done)
        await report(api, first, "Failed")
        name = first["metadata"]["name"]
        await until(api, "pods", lambda listed: name not in [pod["metadata"]["name"] for pod in listed["items"]])
        assert _node_of(first) in [_node_of(pod) for pod in await pods_of(api, 2)]
