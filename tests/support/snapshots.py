"""Snapshots of clusters for `check`: a healthy one with everything installed, and one before the installation."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from neuron_scheduler import __version__
from neuron_scheduler.capture.collection import Collection
from neuron_scheduler.commands.check.subjects.snapshot import Lease, SeenContainer, SeenWorkload, Snapshot, Specs
from neuron_scheduler.kube.objects.base import Decoded, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import PodGroupObject
from tests.support.builders import node, pod

MANIFESTS: Final = Path(__file__).parents[2] / "manifests"
NAMESPACE: Final = "kube-system"


def policies(kind: str = "ValidatingAdmissionPolicy", *, claims: bool = False) -> Specs:
    """Return the policies of `manifests/`, or their bindings, the keeper included; those of `claims` only if asked."""
    files = [*sorted((MANIFESTS / "base").glob("admission_*.yaml")), MANIFESTS / "lease-watch" / "policy.yaml"]
    files += [MANIFESTS / "components/claims/policy/policy.yaml"] if claims else []
    items = [item for path in files for item in yaml.safe_load_all(path.read_text()) if item["kind"] == kind]
    return {item["metadata"]["name"]: item["spec"] for item in items}


def edited(policies: Specs, name: str, **fields: Any) -> Specs:
    """Return the policies, with other fields in the `spec` of one."""
    return {**policies, name: {**policies[name], **fields}}


def without(policies: Specs, left_out: str) -> Specs:
    return {name: spec for name, spec in policies.items() if name != left_out}


def rewritten(policies: Specs, name: str, old: str, new: str) -> Specs:
    """Return the policies, with a text replaced in one of them."""
    changed = _replaced(policies[name], old, new)
    assert changed != policies[name]
    return {**policies, name: changed}


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new)
        case list():
            return [_replaced(item, old, new) for item in value]
        case dict():
            return {key: _replaced(item, old, new) for key, item in value.items()}
    return value


def ours(name: str, **fields: Any) -> Pod:
    """Return a pod with our scheduler's name."""
    return pod(name, scheduler_name="my-scheduler", **fields)


def deployment(name: str = "my-scheduler", *words: str, **fields: Any) -> SeenWorkload:
    """Return a Deployment of ours; `words` replace its arguments."""
    image = f"r/neuron-scheduler:{__version__}"
    container = SeenContainer(image, words or ("run", "--config=/etc/neuron-scheduler/config.yaml"))
    standard: dict[str, Any] = {"namespace": NAMESPACE, "replicas": 2, "ready": 2, "account": "neuron-scheduler"}
    return SeenWorkload(name, **{**standard, "containers": (container,), "serves": ("my-scheduler",), **fields})


def foreign(name: str, **fields: Any) -> SeenWorkload:
    """Return the Deployment of another scheduler."""
    container = SeenContainer("k8s/kube-scheduler:v1.28.5", ("/usr/local/bin/kube-scheduler",))
    standard: dict[str, Any] = {"namespace": NAMESPACE, "replicas": 1, "ready": 1, "account": name}
    return SeenWorkload(name, **{**standard, "containers": (container,), **fields})


def extension(**fields: Any) -> SeenWorkload:
    """Return the Deployment of AWS's extension."""
    container = SeenContainer("public.ecr.aws/neuron/neuron-scheduler:2.30.0.0")
    return foreign("k8s-neuron-scheduler", **{"containers": (container,), **fields})


def plugin(**fields: Any) -> SeenWorkload:
    """Return the DaemonSet of AWS's device plugin."""
    standard: dict[str, Any] = {
        "namespace": NAMESPACE,
        "replicas": 3,
        "ready": 3,
        "account": "neuron-device-plugin",
    }
    return SeenWorkload("neuron-device-plugin-daemonset", **{**standard, **fields})


def collected(
    snapshot: Snapshot, *, members: Sequence[Pod] = (), pod_groups: Sequence[PodGroupObject] = ()
) -> Snapshot:
    """Return a snapshot with the cluster that is made of its nodes and pods, of members of groups, and of PodGroups."""
    collection = Collection(taken=snapshot.taken)
    objects: dict[Resource[Any], Iterable[Any]] = {NODES: snapshot.nodes, PODS: [*snapshot.pods, *members]}
    for resource, values in objects.items():
        for value in values:
            collection.add(resource, Decoded(getattr(value, "key", value.name), value.uid, "", value))
    for each in pod_groups:
        collection.add(POD_GROUPS[-1], Decoded(str(each.group.key), each.uid, "", each))
    return attrs.evolve(snapshot, cluster=collection.capture().cluster)


BEFORE: Final = Snapshot(
    server="https://10.0.0.1:443",
    source="kubeconfig test",
    version="v1.36.2",
    program_version=__version__,
    nodes=(
        node("inf2-a", "inf2.24xlarge"),
        node("trn1-a", "trn1.32xlarge"),
        node("trn1-b", "trn1.32xlarge"),
        node("m5-a"),
    ),
    daemon_sets=(plugin(),),
)
"""Nodes and the device plugin, and nothing installed."""

HEALTHY: Final = collected(
    attrs.evolve(
        BEFORE,
        pods=(
            ours("a", devices=4, on="trn1-a", ids=range(4)),
            ours("b", devices=2, on="inf2-a", ids=(0, 1)),
            ours("waits", devices=16),
        ),
        deployments=(deployment(),),
        lease=Lease("my-scheduler-5f6d-x2x9_0a1b", duration=15, age=2.0),
        policies=policies(),
        policy_bindings=policies("ValidatingAdmissionPolicyBinding"),
        rights={"list pods": True, "create pods/binding": True},
    )
)
"""Everything is installed and well."""


def sick(*, members: Sequence[Pod] = (), pod_groups: Sequence[PodGroupObject] = (), **changes: Any) -> Snapshot:
    """Return the healthy cluster with some parts changed, with members of groups and with PodGroups."""
    return collected(attrs.evolve(HEALTHY, **changes), members=members, pod_groups=pod_groups)
