"""Each finding that needs action, or that a script may look for: absent in a healthy cluster, present in a sick one."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.commands.check.report import SUBJECTS
from neuron_scheduler.commands.check.subjects import snapshot as seen
from neuron_scheduler.commands.check.subjects.finding import NEEDS_ACTION, Finding, Severity
from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, CAPACITY, KEEPER, LEADER, NAME, NODE_NAME
from neuron_scheduler.commands.check.subjects.snapshot import (
    Access,
    Asking,
    Lease,
    Policy,
    RoleBinding,
    SeenPod,
    Snapshot,
    Unread,
)
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.resources import NEURON_DEVICE
from tests.support.builders import node, pod
from tests.support.snapshots import (
    BEFORE,
    HEALTHY,
    NAMESPACE,
    deployment,
    edited,
    extension,
    foreign,
    named,
    neuron_pods,
    nodes,
    ours,
    plugin,
    policies,
    rewritten,
    without,
)

SOURCES: Final = Path(seen.__file__).parent
POLICIES: Final = policies()
BINDINGS: Final = policies("ValidatingAdmissionPolicyBinding")
FORBIDDEN: Final = Unread("list something")
SPOT: Final = node("trn1-z", "trn1.32xlarge", devices=0, cores_per_device=0)


def sick(**changes: Any) -> Snapshot:
    """Return the healthy cluster with some parts changed."""
    return attrs.evolve(HEALTHY, **changes)


def asks(**changes: Any) -> Snapshot:
    """Return the healthy cluster with a profile that asks for machines, and some of what that needs."""
    asking = Asking(rights=(Access("create pods in namespace c", allowed=True),))
    policy = Policy(named("ValidatingAdmissionPolicy", CAPACITY), {})
    with_policy = {"policies": (*POLICIES, policy), "policy_bindings": (*BINDINGS, policy)}
    return sick(asking=attrs.evolve(asking, **changes), **with_policy)


def with_nodes(*more: Node) -> Snapshot:
    """Return the healthy cluster with more nodes."""
    return sick(nodes=(*HEALTHY.nodes, *nodes(*more)))


def with_pods(*more: SeenPod) -> Snapshot:
    """Return the healthy cluster with more pods."""
    return sick(pods=(*HEALTHY.pods, *more))


def with_usage_maps(device_map: str, **changes: Any) -> Snapshot:
    """Return the healthy cluster with an annotation of AWS's extension on trn1-a, where devices 0-3 are used."""
    annotated = tuple(
        attrs.evolve(each, usage_maps={"NEURON_DEV_USAGE_MAP": device_map}) if each.node.name == "trn1-a" else each
        for each in HEALTHY.nodes
    )
    return sick(nodes=annotated, **changes)


RIGHT_MAP: Final = ",".join(["true"] * 4 + ["false"] * 12)
WRONG_MAP: Final = ",".join(["true"] * 16)
LETTING: Final = rewritten(
    POLICIES,
    ALLOCATIONS,
    "-device-plugin'",
    "-device-plugin', 'system:serviceaccount:kube-system:k8s-neuron-scheduler'",
)
OLDER: Final = named("ValidatingAdmissionPolicy", "my-scheduler-leader")
AWS_BINDING: Final = RoleBinding(
    seen.Object("ClusterRoleBinding", "my-scheduler-as-kube-scheduler"),
    "system:kube-scheduler",
    ("kube-system/my-scheduler",),
)

CASES: Final[dict[str, Snapshot]] = {
    # API server
    "version-unknown": sick(version=Unread("get /version")),
    "version-too-old": sick(version="v1.32.9-eks-1"),
    "version-too-new": sick(version="v1.38.0"),
    "kinds-not-served": sick(not_served=("/apis/policy/v1/poddisruptionbudgets",)),
    # rights
    "reader-lacks-rights": sick(daemon_sets=FORBIDDEN),
    "request-failed": sick(daemon_sets=Unread("list daemonsets.apps", forbidden=False, reason="500")),
    "unreadable-objects": sick(malformed=("Deployment kube-system/odd: no spec",)),
    "account-rights-unknown": sick(rights=FORBIDDEN),
    "rights-not-reviewed": sick(rights=None),
    "account-lacks-rights": sick(rights=(Access("list pods", allowed=False), Access("watch pods", allowed=True))),
    "account-missing": sick(rights=(), accounts=()),
    "account-not-installed": BEFORE,
    # nodes
    "nodes-unknown": sick(nodes=FORBIDDEN),
    "no-neuron-nodes": sick(nodes=nodes(node("m5")), pods=()),
    "dra-unknown": attrs.evolve(with_nodes(SPOT), slices=FORBIDDEN),
    "dra-only-nodes": attrs.evolve(with_nodes(SPOT), slices=frozenset({"trn1-z"})),
    "nodes-without-device-plugin": with_nodes(SPOT),
    "implausible-capacity": with_nodes(node("trn1-z", "trn1.32xlarge", devices=15, cores_per_device=2)),
    "unreadable-nodes": with_nodes(node("odd", refusal="node cannot be read: no name")),
    "devices-not-allocatable": with_nodes(node("trn1-z", "trn1.32xlarge", allocatable={NEURON_DEVICE: 15})),
    "unhealthy-nodes": with_nodes(node("trn1-z", "trn1.32xlarge", neuron_unhealthy=True)),
    # device plugin
    "device-plugin-not-ready": sick(daemon_sets=(plugin(ready=2),)),
    "device-plugin-unknown": sick(daemon_sets=FORBIDDEN, system_pods=()),
    "device-plugin-unfamiliar": sick(daemon_sets=(), system_pods=()),
    "device-plugin-missing": sick(daemon_sets=(), system_pods=(), nodes=nodes(SPOT)),
    "device-plugin-not-needed": sick(daemon_sets=(), system_pods=(), nodes=()),
    "device-plugin-may-not-write": sick(daemon_sets=(plugin(account="openshift-plugin"),)),
    "device-plugin-account": attrs.evolve(BEFORE, daemon_sets=(plugin(account="openshift-plugin"),)),
    # installation
    "installation-unknown": sick(deployments=FORBIDDEN),
    "not-installed": BEFORE,
    "scaled-to-zero": sick(deployments=(deployment(replicas=0, ready=0),)),
    "namespace-missing": attrs.evolve(BEFORE, namespace="kube-sytem", accounts=()),
    "not-ready": sick(deployments=(deployment(ready=0),)),
    "partly-ready": sick(deployments=(deployment(ready=1),)),
    "another-version": sick(deployments=(deployment(image="r/neuron-scheduler:0.0.9"),)),
    "another-namespace": sick(deployments=(deployment(), deployment(namespace="elsewhere"))),
    "lease-unknown": sick(lease=FORBIDDEN),
    "lease-not-held": sick(lease=None),
    "lease-held-by-another": sick(lease=Lease("somebody-else_0a1b", 15, 1.0)),
    "owned-by-aws-release": sick(others=((named("ClusterRole", "neuron-scheduler", release="neuron-helm-chart"),),)),
    "mixed-owners": sick(others=((named("ClusterRole", "neuron-scheduler", release="mine"),),)),
    "older-policies": sick(policies=(*POLICIES, attrs.evolve(POLICIES[0], object=OLDER))),
    "older-objects": sick(others=((named("ClusterRole", "my-scheduler"),),)),
    "older-version": sick(deployments=(deployment(account="my-scheduler"),)),
    # policies
    "policies-unknown": sick(policies=FORBIDDEN),
    "policies-not-installed": BEFORE,
    "policies-of-older-version": sick(deployments=(deployment(account="my-scheduler"),)),
    "policy-missing": sick(policies=without(POLICIES, NODE_NAME)),
    "policy-for-another-account": sick(policies=rewritten(POLICIES, LEADER, ":neuron-scheduler'", ":another'")),
    "policy-stale": sick(policies=rewritten(POLICIES, LEADER, "== ''", "== 'x'")),
    "policy-without-scheduler-name": sick(deployments=(deployment(serves=("my-scheduler", "batch")),)),
    "policy-without-election": sick(deployments=(deployment("my-scheduler", "run", "--leader-elect=false"),)),
    "policy-not-bound": sick(policy_bindings=without(BINDINGS, ALLOCATIONS)),
    "policy-denies-nothing": sick(policy_bindings=edited(BINDINGS, ALLOCATIONS, validationActions=["Audit"])),
    "policy-bound-in-part": sick(policy_bindings=edited(BINDINGS, NODE_NAME, matchResources={"namespaceSelector": {}})),
    "capacity-requests-unknown": asks(namespace=FORBIDDEN),
    "capacity-namespace-missing": asks(namespace=False),
    "capacity-priority-class-missing": asks(priority_class=False),
    "capacity-rights-unknown": asks(rights=FORBIDDEN),
    "capacity-rights-missing": asks(rights=(Access("create pods in namespace c", allowed=False),)),
    "capacity-policy-missing": attrs.evolve(asks(), policy_bindings=BINDINGS),
    "policy-for-another-lease": sick(
        policy_bindings=edited(
            BINDINGS, LEADER, paramRef={"name": "l", "namespace": NAMESPACE, "parameterNotFoundAction": "Allow"}
        )
    ),
    "policy-denies-without-lease": sick(
        policy_bindings=edited(
            BINDINGS,
            LEADER,
            paramRef={"name": "my-scheduler", "namespace": NAMESPACE, "parameterNotFoundAction": "Deny"},
        )
    ),
    "keeper-missing": sick(policies=without(POLICIES, KEEPER)),
    # other schedulers
    "schedulers-unknown": sick(deployments=FORBIDDEN),
    "scheduler-unknown": sick(deployments=(deployment(), foreign("other-scheduler", serves=FORBIDDEN))),
    "same-scheduler-name": sick(deployments=(deployment(), foreign("other-scheduler", serves=("my-scheduler",)))),
    "lease-held-before": attrs.evolve(BEFORE, lease=Lease("my-scheduler-7c9-x_1", 15, 1.0)),
    "served-twice": sick(deployments=(deployment(), deployment("k8s-neuron-scheduler", "extender", serves=()))),
    "extension-may-not-write": sick(deployments=(deployment(), extension())),
    "extension-runs": attrs.evolve(BEFORE, deployments=(extension(),)),
    "extension-beside": sick(deployments=(deployment(), extension()), policies=LETTING),
    "extension-pods": sick(
        system_pods=(SeenPod(pod("x", namespace=NAMESPACE, labels={"component": "k8s-neuron-scheduler"})),)
    ),
    "role-bindings-unknown": sick(role_bindings=FORBIDDEN),
    "leftover-role-bindings": sick(role_bindings=(AWS_BINDING,)),
    "too-many-rights": sick(
        role_bindings=(attrs.evolve(AWS_BINDING, accounts=("kube-system/neuron-scheduler",)),),
    ),
    # usage maps
    "usage-maps-left": with_usage_maps(RIGHT_MAP),
    "usage-maps-stale": with_usage_maps(WRONG_MAP, deployments=(deployment(), extension())),
    "usage-maps": with_usage_maps(RIGHT_MAP, deployments=(deployment(), extension())),
    # allocations
    "allocations-unknown": sick(pods=FORBIDDEN),
    "allocations-overlap": with_pods(*neuron_pods(ours("c", devices=4, on="trn1-a", ids=range(4)))),
    "allocations-unreadable": with_pods(*neuron_pods(ours("c", devices=4, on="trn1-b"))),
    "no-allocations": sick(pods=()),
    # scheduler names
    "pods-unknown": sick(pods=FORBIDDEN),
    "no-neuron-pods": BEFORE,
    "unreadable-pods": with_pods(SeenPod(pod("odd"), readable=False)),
    "default-scheduler": attrs.evolve(
        with_pods(*neuron_pods(pod("c", devices=1))),
        deployments=(extension(),),
    ),
    "no-scheduler-name": with_pods(*neuron_pods(pod("c", devices=1))),
    "another-scheduler-name": attrs.evolve(
        with_pods(*neuron_pods(pod("c", devices=1, scheduler_name="theirs"))),
        deployments=(deployment(), foreign("their-scheduler", serves=("theirs",))),
    ),
    "mistyped-scheduler-name": with_pods(*neuron_pods(pod("c", devices=1, scheduler_name="my-schedular"))),
    "unknown-scheduler-name": with_pods(*neuron_pods(pod("c", devices=1, scheduler_name="volcano"))),
}
WELL: Final = {
    *("version", "reader", "account-rights", "machines", "device-plugin", "deployment", "lease", "policies"),
    *("no-other-scheduler", "allocations", "scheduler-names"),
}
"""What a healthy cluster has."""
WHERE_USED: Final = {"capacity-requests"}
"""What one has that asks for machines."""


def findings(snapshot: Snapshot) -> list[Finding]:
    """Return what all subjects find."""
    return [finding for subject in SUBJECTS for finding in subject.findings(snapshot)]


def codes(found: Iterable[Finding]) -> set[str]:
    """Return the codes of findings."""
    return {finding.code for finding in found}


def test_a_healthy_cluster_is_fine() -> None:
    """Every subject is well, and nothing else is said."""
    assert codes(findings(HEALTHY)) == WELL
    assert {finding.severity for finding in findings(HEALTHY)} == {Severity.OK}


def test_a_healthy_cluster_that_asks_for_machines_is_fine() -> None:
    """One subject more is well."""
    assert codes(findings(asks())) == WELL | WHERE_USED


def test_a_namespace_that_is_missing_is_one_finding() -> None:
    """Its rights and its policy are missing as well, which nobody needs to read."""
    missing = attrs.evolve(asks(namespace=False, rights=(Access("create pods", allowed=False),)), policies=POLICIES)
    assert codes(findings(missing)) - WELL == {"capacity-namespace-missing"}


LEFT_OUT: Final = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [CAPACITY]}


@pytest.mark.parametrize(
    ("resources", "name", "fine"),
    [
        ({"namespaceSelector": {"matchExpressions": [LEFT_OUT]}, "matchPolicy": "Equivalent"}, NAME, True),
        ({"namespaceSelector": {"matchExpressions": [LEFT_OUT]}, "objectSelector": {}}, NAME, True),
        ({"namespaceSelector": {"matchExpressions": [LEFT_OUT]}}, NODE_NAME, False),
        ({"namespaceSelector": {"matchExpressions": [LEFT_OUT | {"values": ["x"]}]}}, NAME, False),
        ({"namespaceSelector": {"matchExpressions": [LEFT_OUT], "matchLabels": {"a": "b"}}}, NAME, False),
        ({"namespaceSelector": {"matchExpressions": [LEFT_OUT]}, "objectSelector": {"a": 1}}, NAME, False),
        ({"namespaceSelector": 7}, NAME, False),
        (7, NAME, False),
    ],
)
def test_only_the_placeholders_are_left_out(resources: Any, name: str, *, fine: bool) -> None:
    """Anything more that a binding leaves out is said."""
    found = findings(sick(policy_bindings=edited(BINDINGS, name, matchResources=resources)))
    assert ("policy-bound-in-part" not in codes(found)) is fine


def test_before_the_installation_nothing_is_wrong() -> None:
    """What is not installed is a note and no fault."""
    found = findings(BEFORE)
    assert not [finding for finding in found if finding.severity in NEEDS_ACTION]
    assert codes(found) >= {"not-installed", "policies-not-installed", "account-not-installed"}


@pytest.mark.parametrize("code", CASES)
def test_a_sick_cluster_has_the_finding(code: str) -> None:
    """The finding is there; its severity is that of its code everywhere."""
    (first, *_) = [finding for finding in findings(CASES[code]) if finding.code == code]
    assert code not in WELL
    assert first.message
    assert not first.message.endswith(".")
    assert not first.advice.endswith(".")


def test_every_finding_has_a_case() -> None:
    """All codes in the sources are in the table above."""
    known = {code for path in SOURCES.glob("*.py") for code in codes_in(path)}
    assert known == CASES.keys() | WELL | WHERE_USED


def codes_in(path: Path) -> set[str]:
    """Return the codes that a module's findings have."""
    known = set()
    makers = {"ok", "note", "warning", "error", "unknown", "make", "Finding"}
    for call in ast.walk(ast.parse(path.read_text())):
        match call:
            case ast.Call(ast.Name(maker), [ast.Constant(code), *_]) if maker in makers:
                known.add(str(code))
    return known


def test_what_cannot_be_read_is_never_fine() -> None:
    """If nothing can be read, no subject says that something is well."""
    nothing = attrs.evolve(
        HEALTHY,
        version=FORBIDDEN,
        nodes=FORBIDDEN,
        pods=FORBIDDEN,
        system_pods=FORBIDDEN,
        slices=FORBIDDEN,
        deployments=FORBIDDEN,
        daemon_sets=FORBIDDEN,
        lease=FORBIDDEN,
        accounts=FORBIDDEN,
        role_bindings=FORBIDDEN,
        others=(FORBIDDEN,),
        policies=FORBIDDEN,
        policy_bindings=FORBIDDEN,
        rights=FORBIDDEN,
    )
    assert {finding.severity for finding in findings(nothing)} == {Severity.UNCHECKED}


def test_the_page_lists_every_code() -> None:
    """docs/check.md has the codes of each subject; scripts depend on them."""
    page = (Path(__file__).parents[4] / "docs" / "check.md").read_text()
    listed = {
        subject: set(re.findall(r"`([a-z-]+)`", codes_of_it))
        for subject, codes_of_it in re.findall(r"^\| `([a-z][a-z-]*)` \| (`.*) \|$", page, re.MULTILINE)
    }
    assert listed.keys() == {subject.name for subject in SUBJECTS}
    snapshots = [HEALTHY, asks(), *CASES.values()]
    assert listed == {each.name: {code for s in snapshots for code in codes(each.findings(s))} for each in SUBJECTS}
