"""
What the demo installs before its story: the scheduler's Deployment, as if somebody had applied it with kubectl.

Name, selector and container are those of `manifests/`, so that `kubectl apply -k manifests/` takes it over.
"""

import json
from typing import Any, Final

from neuron_scheduler import __version__
from neuron_scheduler.sandbox.apiserver.store import Object, Store
from neuron_scheduler.sandbox.demo.scheduler_container import IMAGE
from neuron_scheduler.sandbox.demo.workload import SCHEDULER_NAME

NAMESPACE: Final = "kube-system"
NAME: Final = "my-scheduler"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def deployment() -> Object:
    """Return the Deployment of one scheduler with leader election."""
    labels = {"app.kubernetes.io/component": "scheduler", "app.kubernetes.io/name": "neuron-scheduler"}
    container: dict[str, Any] = {
        "name": "neuron-scheduler",
        "image": f"{IMAGE}:{__version__}",
        "args": ["run", f"--scheduler-name={SCHEDULER_NAME}", "--leader-elect=true", "-v=2"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "http", "containerPort": 10251}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
    }
    whole: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    applied: Object = json.loads(json.dumps(whole))
    applied["metadata"]["annotations"] = {_LAST_APPLIED: json.dumps(whole)}
    return applied


def deployed(store: Store) -> Object:
    """Return the Deployment as it is now; empty if it was deleted."""
    return store.get("deployments", NAMESPACE, NAME) or {}


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
