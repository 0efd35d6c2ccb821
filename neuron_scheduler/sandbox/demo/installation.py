"""
What the demo installs before its story, as if somebody had applied it: the scheduler and the device plugin.

Name, selector and container of the scheduler's Deployment are those of `manifests/`, so that kubectl can apply these
over it. The device plugin is a DaemonSet of AWS's name, and its pods do nothing: nodes report their devices without it.
"""

import json
from typing import Any, Final

from neuron_scheduler import __version__
from neuron_scheduler.sandbox.apiserver.store import Object, Store
from neuron_scheduler.sandbox.demo.scheduler_container import IMAGE
from neuron_scheduler.sandbox.demo.workload import SCHEDULER_NAME
from neuron_scheduler.sandbox.fleet import INSTANCE_TYPE_LABEL, INSTANCE_TYPES

NAMESPACE: Final = "kube-system"
NAME: Final = "my-scheduler"
TOKEN: Final = "demo"  # noqa: S105 - nothing is behind it but the simulated fleet
"""The bearer token that the embedded server accepts for the names of pods on the page; its holder may do everything."""
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
    return _applied(whole)


def account() -> Object:
    """Return the ServiceAccount of the scheduler's pods. In a cluster, each namespace has one of this name."""
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}


def device_plugin() -> Object:
    """Return a DaemonSet with name, label and account of AWS's device plugin, for the nodes with Neuron."""
    types = [name for name, machine in INSTANCE_TYPES.items() if machine.devices]
    expression = {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": types}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    labels = {"name": "neuron-device-plugin-ds"}
    spec: dict[str, Any] = {
        "serviceAccountName": "neuron-device-plugin",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
        "tolerations": [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "neuron-device-plugin", "image": "neuron-device-plugin:simulated"}],
    }
    return _applied(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "neuron-device-plugin-daemonset", "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )


def _applied(whole: dict[str, Any]) -> Object:
    """Return a copy with the annotation that `kubectl apply` leaves."""
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
