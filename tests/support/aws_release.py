"""
The objects of AWS's Neuron release: device plugin, scheduler extension, and the kube-scheduler `my-scheduler`.

Written from AWS's documentation and from what its chart `neuron-helm-chart` and its plain manifests contain: the same
names, labels, rights and configuration. The images are those of AWS; no test pulls them. `write_chart` makes a chart of
them, so that the real helm owns them as it owns AWS's.
"""

import json
from pathlib import Path
from typing import Any, Final

Object = dict[str, Any]

RELEASE: Final = "neuron-helm-chart"
VERSION: Final = "1.7.0"  # of the chart
EXTENSION: Final = "k8s-neuron-scheduler"
SCHEDULER: Final = "my-scheduler"
EXTENSION_URL: Final = "http://k8s-neuron-scheduler.kube-system.svc.cluster.local:12345"
POLICY_URL: Final = "http://127.0.0.1:32700"
_RBAC: Final = "rbac.authorization.k8s.io"


def device_plugin() -> list[Object]:
    """Return the device plugin, which stays whatever schedules."""
    name, labels = "neuron-device-plugin", {"name": "neuron-device-plugin-ds"}
    container = {"name": name, "image": "public.ecr.aws/neuron/neuron-device-plugin:2.29.149.0"}
    rules = [
        _rule("", ["nodes"], "get list watch"),
        _rule("", ["events"], "create patch"),
        _rule("", ["pods"], "update patch get list watch"),
        _rule("", ["nodes/status"], "patch update"),
    ]
    daemon_set = _workload("DaemonSet", name, labels, {"serviceAccountName": name, "containers": [container]})
    return [*_account(name, rules), daemon_set]


def extension(*, default_scheduler: bool = False) -> list[Object]:
    """Return the scheduler extension, for `my-scheduler` or for the default scheduler; one of its rights differs."""
    labels = _labels("neuron-scheduler", EXTENSION)
    rules = [
        _rule("", ["nodes"], "get list watch"),
        _rule("", ["events"], "create patch"),
        _rule("", ["pods"], "get patch update list watch"),
        _rule("", ["bindings", "pods/binding"], "create"),
    ]
    if not default_scheduler:
        rules.append(_rule("", ["nodes/status"], "get patch update list watch"))
    container = {
        "name": "neuron-scheduler" if default_scheduler else "neuron-scheduler-exp",
        "image": "public.ecr.aws/neuron/neuron-scheduler:2.29.149.0",
        "env": [{"name": "PORT", "value": "12345"}],
    }
    spec: Object = {
        "serviceAccountName": EXTENSION,
        "priorityClassName": "system-node-critical",
        "containers": [container],
        **({"hostNetwork": True} if default_scheduler else {"schedulerName": SCHEDULER}),
    }
    port = {"port": 12345, "name": "http", "targetPort": 12345} | ({"nodePort": 32700} if default_scheduler else {})
    service = _named("v1", "Service", EXTENSION, labels) | {
        "spec": {"selector": labels, "ports": [port], **({"type": "NodePort"} if default_scheduler else {})}
    }
    deployment = _workload("Deployment", EXTENSION, labels, spec)
    deployment["spec"] |= {"replicas": 1, "strategy": {"type": "Recreate"}}
    return [*_account(EXTENSION, rules, labels), deployment, service]


def my_scheduler() -> list[Object]:
    """Return AWS's second kube-scheduler, with the rights that it has beside those of its own ClusterRole."""
    labels = _labels(RELEASE, SCHEDULER)
    rules = [
        _rule("", ["configmaps"], "get list watch"),
        _rule("coordination.k8s.io", ["leases"], "create get list update"),
    ]
    container = {
        "name": "kube-second-scheduler",
        "image": "public.ecr.aws/eks-distro/kubernetes/kube-scheduler:v1.31.12-eks-1-31-30",
        "command": ["/usr/local/bin/kube-scheduler"],
        "args": [f"--config=/etc/kubernetes/{SCHEDULER}/my-scheduler-config.yaml", "--leader-elect=true", "--v=2"],
        "resources": {"requests": {"cpu": "0.1"}},
        "volumeMounts": [{"name": "config-volume", "mountPath": f"/etc/kubernetes/{SCHEDULER}"}],
    }
    volume = {"name": "config-volume", "configMap": {"name": f"{SCHEDULER}-config"}}
    spec = {"serviceAccountName": SCHEDULER, "containers": [container], "volumes": [volume]}
    deployment = _workload("Deployment", SCHEDULER, labels | {"tier": "control-plane"}, spec)
    deployment["spec"]["template"]["metadata"]["labels"]["version"] = "second"
    return [
        *_account(SCHEDULER, rules, labels),
        _role_binding(f"{SCHEDULER}-as-kube-scheduler", "system:kube-scheduler", SCHEDULER, labels),
        _role_binding(f"{SCHEDULER}-as-volume-scheduler", "system:volume-scheduler", SCHEDULER, labels),
        _config_map(f"{SCHEDULER}-config", "my-scheduler-config.yaml", my_scheduler_configuration()),
        deployment,
    ]


def my_scheduler_configuration(url: str = EXTENSION_URL) -> Object:
    """Return the KubeSchedulerConfiguration of `my-scheduler`, with the extension at this URL."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": SCHEDULER}],
        "extenders": [_extender(url) | {"enableHTTPS": False, "nodeCacheCapable": False}],
        "leaderElection": {"leaderElect": True, "resourceNamespace": "kube-system", "resourceName": SCHEDULER},
    }


def policy() -> list[Object]:
    """Return the ConfigMap of the default scheduler's road: a Policy, which Kubernetes 1.23 has removed."""
    value = {"kind": "Policy", "apiVersion": "v1"}
    extender = _extender(POLICY_URL) | {"enableHttps": False, "nodeCacheCapable": True}
    return [_config_map(f"{EXTENSION}-config", "policy.cfg", value | {"extenders": [extender]})]


def everything() -> list[Object]:
    return [*device_plugin(), *extension(), *my_scheduler(), *policy()]


def write_chart(folder: Path) -> Path:
    """Write a chart of these objects that reads the values of AWS's commands; return its folder."""
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text(f"apiVersion: v2\nname: {RELEASE}\nversion: {VERSION}\nappVersion: 2.29.149.0\n")
    (folder / "values.yaml").write_text(
        "scheduler: {enabled: false, customScheduler: {enabled: true}, defaultScheduler: {enabled: false}}\n"
        "npd: {enabled: true}\n"
    )
    custom = "and .Values.scheduler.enabled .Values.scheduler.customScheduler.enabled"
    default = "and .Values.scheduler.enabled .Values.scheduler.defaultScheduler.enabled"
    for name, condition, objects in (
        ("device-plugin", "", device_plugin()),
        ("extension", custom, extension()),
        ("my-scheduler", custom, my_scheduler()),
        ("default-scheduler", default, [*extension(default_scheduler=True), *policy()]),
    ):
        documents = "---\n".join(f"{json.dumps(item, indent=1)}\n" for item in objects)  # JSON is YAML
        text = f"{{{{- if {condition} }}}}\n{documents}{{{{- end }}}}\n" if condition else documents
        (folder / "templates" / f"{name}.yaml").write_text(text)
    return folder


def write_manifests(folder: Path) -> None:
    """Write the plain manifests of the EKS road under AWS's file names."""
    for name, objects in {
        "k8s-neuron-device-plugin.yml": device_plugin(),
        "k8s-neuron-scheduler-eks.yml": extension(),
        "my-scheduler.yml": my_scheduler(),
    }.items():
        (folder / name).write_text("---\n".join(f"{json.dumps(item)}\n" for item in objects))


def _extender(url: str) -> Object:
    resources = ("aws.amazon.com/neuron", "aws.amazon.com/neuroncore")
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "bindVerb": "bind",
        "managedResources": [{"name": name, "ignoredByScheduler": False} for name in resources],
        "ignorable": False,
    }


def _labels(name: str, component: str) -> Object:
    return {
        "app.kubernetes.io/name": name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/instance": RELEASE,
    }


def _named(version: str, kind: str, name: str, labels: Object | None = None, *, namespaced: bool = True) -> Object:
    metadata = {"name": name, "labels": labels or {}} | ({"namespace": "kube-system"} if namespaced else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata}


def _rule(group: str, resources: list[str], verbs: str) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs.split()}


def _account(name: str, rules: list[Object], labels: Object | None = None) -> list[Object]:
    return [
        _named("v1", "ServiceAccount", name, labels),
        _named(f"{_RBAC}/v1", "ClusterRole", name, labels, namespaced=False) | {"rules": rules},
        _role_binding(name, name, name, labels),
    ]


def _role_binding(name: str, role: str, account: str, labels: Object | None) -> Object:
    return _named(f"{_RBAC}/v1", "ClusterRoleBinding", name, labels, namespaced=False) | {
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}],
    }


def _config_map(name: str, key: str, value: Object) -> Object:
    return _named("v1", "ConfigMap", name) | {"data": {key: json.dumps(value, indent=1)}}


def _workload(kind: str, name: str, labels: Object, spec: Object) -> Object:
    template = {"metadata": {"labels": dict(labels)}, "spec": spec}
    return _named("apps/v1", kind, name, labels) | {"spec": {"selector": {"matchLabels": labels}, "template": template}}
