"""
What the demo installs before its story, as if somebody had applied it: the objects of `manifests/`.

With one replica, and an image that is this checkout. Pods without Neuron get their node from `place_other_pods`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from sandbox.apiserver.resources import PODS
from sandbox.apiserver.status import StatusError
from sandbox.apiserver.store import Expired, Object
from sandbox.fleet import CORE, DEVICE
from sandbox.server import ApiServer

IMAGE: Final = "neuron-scheduler"
NAMESPACE: Final = "kube-system"
NODE: Final = "cpu-a"
"""Where all pods without Neuron run."""
TOKEN: Final = "demo"  # noqa: S105 - nothing is behind it but the simulated fleet
"""The bearer token that the embedded server accepts for the names of pods on the page; its holder may do everything."""
_MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
_CONFIG: Final = "neuron-scheduler-config"
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def objects() -> Iterator[Object]:
    """Yield what `kubectl apply -k` makes of `manifests/lease-watch` and `manifests/my-scheduler`."""
    settings = (_MANIFESTS / "my-scheduler" / "config.yaml").read_text()
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"config.yaml": settings}}
    installed: list[Object] = [config | {"metadata": {"name": _CONFIG, "namespace": NAMESPACE}}]
    for file in (*sorted((_MANIFESTS / "base").glob("*.yaml")), _MANIFESTS / "lease-watch" / "policy.yaml"):
        installed += [item for item in yaml.safe_load_all(file.read_text()) if item["kind"] != "Kustomization"]
    for item in installed:
        item["metadata"].setdefault("labels", {})["app.kubernetes.io/name"] = "neuron-scheduler"
        if item["kind"] == "Deployment":
            item["spec"]["replicas"] = 1
            item["spec"]["template"]["spec"]["containers"][0]["image"] = f"{IMAGE}:demo"
        item["metadata"]["annotations"] = {_APPLIED: json.dumps(item)}
        yield item


async def place_other_pods(server: ApiServer) -> None:
    """Bind the pods without Neuron that the default scheduler would place, without end."""
    store = server.store
    while True:
        version = store.version
        for pod in store.objects(PODS.storage):
            _place(server, pod)
        try:
            async for change in store.follow(PODS.storage, version):
                if change.type != "DELETED":
                    _place(server, change.object)
        except Expired:
            continue  # it fell behind


def _place(server: ApiServer, pod: Object) -> None:
    meta, spec = pod["metadata"], pod["spec"]
    limits = {name for container in spec["containers"] for name in container["resources"].get("limits") or {}}
    if spec["schedulerName"] != "default-scheduler" or spec.get("nodeName") or limits & {DEVICE, CORE}:
        return
    binding = {"metadata": {"name": meta["name"], "uid": meta["uid"]}, "target": {"kind": "Node", "name": NODE}}
    try:
        server.registry.bind(meta["namespace"], meta["name"], binding)
    except StatusError as error:
        if error.code not in {404, 409}:  # it has changed meanwhile, or is gated
            raise


def kubeconfig(url: str) -> str:
    """Return a kubeconfig for the embedded server, as JSON, which is YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "demo",
            "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
            "clusters": [{"name": "demo", "cluster": {"server": url}}],
            "users": [{"name": "demo", "user": {}}],
        },
        indent=2,
    )
