"""Snapshots of clusters for `check`: a healthy one with everything installed, and one before the installation."""

from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from neuron_scheduler import __version__
from neuron_scheduler.commands.check.subjects.snapshot import (
    Access,
    Lease,
    Object,
    Policy,
    RoleBinding,
    SeenContainer,
    SeenPod,
    SeenWorkload,
    Snapshot,
)
from neuron_scheduler.model.node import AnnotatedNode, Node
from neuron_scheduler.model.pod import Pod
from tests.support.builders import node, pod

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
LABELS: Final = {"app.kubernetes.io/name": "neuron-scheduler"}
NAMESPACE: Final = "kube-system"


def policies(kind: str = "ValidatingAdmissionPolicy") -> tuple[Policy, ...]:
    """Return the policies of `manifests/`, or their bindings, the keeper included."""
    files = [*sorted((MANIFESTS / "base").glob("admission_*.yaml")), MANIFESTS / "lease-watch" / "policy.yaml"]
    items = [item for path in files for item in yaml.safe_load_all(path.read_text()) if item["kind"] == kind]
    return tuple(Policy(Object(kind, item["metadata"]["name"], labels=LABELS), item["spec"]) for item in items)


def edited(policies: tuple[Policy, ...], name: str, **fields: Any) -> tuple[Policy, ...]:
    """Return the policies, with other fields in the `spec` of one."""
    return tuple(
        attrs.evolve(policy, spec={**policy.spec, **fields}) if policy.object.name == name else policy
        for policy in policies
    )


def without(policies: tuple[Policy, ...], *names: str) -> tuple[Policy, ...]:
    """Return the policies without some."""
    return tuple(policy for policy in policies if policy.object.name not in names)


def rewritten(policies: tuple[Policy, ...], name: str, old: str, new: str) -> tuple[Policy, ...]:
    """Return the policies, with a text replaced in one of them."""
    spec = next(policy.spec for policy in policies if policy.object.name == name)
    changed = _replaced(spec, old, new)
    assert changed != spec
    return edited(policies, name, **changed)


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new)
        case list():
            return [_replaced(item, old, new) for item in value]
        case dict():
            return {key: _replaced(item, old, new) for key, item in value.items()}
    return value


def nodes(*values: Node) -> tuple[AnnotatedNode, ...]:
    """Return nodes as `check` sees them."""
    return tuple(map(AnnotatedNode, values))


def neuron_pods(*values: Pod) -> tuple[SeenPod, ...]:
    """Return pods as `check` sees them."""
    return tuple(map(SeenPod, values))


def ours(name: str, **fields: Any) -> Pod:
    """Return a pod with our scheduler's name."""
    return pod(name, scheduler_name="my-scheduler", **fields)


def deployment(
    name: str = "my-scheduler", *words: str, image: str = f"r/neuron-scheduler:{__version__}", **fields: Any
) -> SeenWorkload:
    """Return a Deployment of ours; `words` replace its arguments."""
    seen = Object("Deployment", name, fields.pop("namespace", NAMESPACE), LABELS, fields.pop("release", ""))
    container = SeenContainer("neuron-scheduler", image, words or ("run", "--config=/etc/neuron-scheduler/config.yaml"))
    standard: dict[str, Any] = {"replicas": 2, "ready": 2, "account": "neuron-scheduler", "labels": LABELS}
    return SeenWorkload(seen, **{**standard, "containers": (container,), "serves": ("my-scheduler",), **fields})


def foreign(name: str, *, serves: Any = None, release: str = "", **fields: Any) -> SeenWorkload:
    """Return the Deployment of another scheduler."""
    seen = Object("Deployment", name, NAMESPACE, release=release, release_namespace=NAMESPACE if release else "")
    container = SeenContainer("kube-second-scheduler", "k8s/kube-scheduler:v1.28.5", ("/usr/local/bin/kube-scheduler",))
    standard: dict[str, Any] = {"replicas": 1, "ready": 1, "account": name, "containers": (container,)}
    return SeenWorkload(seen, serves=serves, **{**standard, **fields})


def extension(**fields: Any) -> SeenWorkload:
    """Return the Deployment of AWS's extension."""
    container = SeenContainer("neuron-scheduler-exp", "public.ecr.aws/neuron/neuron-scheduler:2.30.0.0")
    return foreign("k8s-neuron-scheduler", **{"containers": (container,), **fields})


def plugin(**fields: Any) -> SeenWorkload:
    """Return the DaemonSet of AWS's device plugin."""
    standard: dict[str, Any] = {
        "object": Object("DaemonSet", "neuron-device-plugin-daemonset", NAMESPACE),
        "replicas": 3,
        "ready": 3,
        "account": "neuron-device-plugin",
        "labels": {"name": "neuron-device-plugin-ds"},
    }
    return SeenWorkload(**{**standard, **fields})


def plugin_pod(**fields: Any) -> SeenPod:
    """Return a pod of AWS's device plugin."""
    labels = {"name": "neuron-device-plugin-ds"}
    plugin_pod = pod("neuron-device-plugin-x", namespace=NAMESPACE, labels=labels)
    return SeenPod(plugin_pod, **{"account": "neuron-device-plugin", **fields})


def named(kind: str, name: str, *, namespace: str = "", release: str = "", labels: Any = None) -> Object:
    """Return the identity of an object, by default of ours."""
    return Object(kind, name, namespace, LABELS if labels is None else labels, release)


BEFORE: Final = Snapshot(
    server="https://10.0.0.1:443",
    source="kubeconfig test",
    version="v1.36.2",
    program_version=__version__,
    nodes=nodes(
        node("inf2-a", "inf2.24xlarge"),
        node("trn1-a", "trn1.32xlarge"),
        node("trn1-b", "trn1.32xlarge"),
        node("m5-a"),
    ),
    daemon_sets=(plugin(),),
    system_pods=(plugin_pod(),),
)
"""Nodes and the device plugin, and nothing installed."""

HEALTHY: Final = attrs.evolve(
    BEFORE,
    pods=neuron_pods(
        ours("a", devices=4, on="trn1-a", ids=range(4)),
        ours("b", devices=2, on="inf2-a", ids=(0, 1)),
        ours("waits", devices=16),
    ),
    deployments=(deployment(),),
    lease=Lease("my-scheduler-5f6d-x2x9_0a1b", duration=15, age=2.0),
    accounts=(named("ServiceAccount", "neuron-scheduler", namespace=NAMESPACE), Object("ServiceAccount", "default")),
    role_bindings=(
        RoleBinding(
            named("ClusterRoleBinding", "neuron-scheduler"), "neuron-scheduler", ("kube-system/neuron-scheduler",)
        ),
    ),
    others=((named("ClusterRole", "neuron-scheduler"),), (named("ConfigMap", "neuron-scheduler-config"),)),
    policies=policies(),
    policy_bindings=policies("ValidatingAdmissionPolicyBinding"),
    rights=(Access("list pods", allowed=True), Access("create pods/binding", allowed=True)),
)
"""Everything is installed and well."""
