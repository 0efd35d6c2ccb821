"""
What the demo installs before its story, as if somebody had applied it: the scheduler's Deployment and its account.

Name, labels and container are those of `manifests/`.
"""

import json
from typing import Any, Final

from sandbox.apiserver.store import Object
from sandbox.demo.workload import SCHEDULER_NAME

IMAGE: Final = "neuron-scheduler"
NAMESPACE: Final = "kube-system"
NAME: Final = "my-scheduler"
NODE: Final = "cpu-a"
"""Where the scheduler runs: nobody schedules pods of the default scheduler here."""
TOKEN: Final = "demo"  # noqa: S105 - nothing is behind it but the simulated fleet
"""The bearer token that the embedded server accepts for the names of pods on the page; its holder may do everything."""


def deployment() -> Object:
    """Return the Deployment of one scheduler with leader election."""
    labels = {"app.kubernetes.io/component": "scheduler", "app.kubernetes.io/name": "neuron-scheduler"}
    container: dict[str, Any] = {
        "name": "neuron-scheduler",
        "image": f"{IMAGE}:demo",
        "args": ["run", f"--scheduler-name={SCHEDULER_NAME}", "--leader-elect=true", "-v=2"],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": "http", "containerPort": 10251}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": dict(labels)},
            "template": {"metadata": {"labels": dict(labels)}, "spec": {"nodeName": NODE, "containers": [container]}},
        },
    }


def account() -> Object:
    """Return the ServiceAccount of the scheduler's pods. In a cluster, each namespace has one of this name."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}


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
