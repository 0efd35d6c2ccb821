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
from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, AUTO_MODE, CLAIMS, KEEPER, LEADER, NODE_NAME
from neuron_scheduler.commands.check.subjects.snapshot import Lease, SeenWorkload, Snapshot, Unread
from neuron_scheduler.kube.writes.binder import STALE
from neuron_scheduler.model.devices import NEURON_DRIVER, DeviceKey
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.resources import NEURON_DEVICE
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.snapshots import (
    BEFORE,
    HEALTHY,
    deployment,
    extension,
    foreign,
    ours,
    plugin,
    policies,
    rewritten,
    sick,
    without,
)

SOURCES: Final = Path(seen.__file__).parent
POLICIES: Final = policies()
BINDINGS: Final = policies("ValidatingAdmissionPolicyBinding")
FORBIDDEN: Final = Unread("list something")
SPOT: Final = node("trn1-z", "trn1.32xlarge", devices=0, cores_per_device=0)


def with_node(another: Node) -> Snapshot:
    """Return the healthy cluster with one more node."""
    return sick(nodes=(*HEALTHY.nodes, another))


def with_pod(another: Pod) -> Snapshot:
    """Return the healthy cluster with one more pod."""
    return sick(pods=(*HEALTHY.pods, another))


def with_group(*members: Pod) -> Snapshot:
    """Return the healthy cluster with members of groups that wait, an hour after they were created."""
    return sick(members=members, taken=3600.0)


TRAIN: Final = PodGroup(GroupKey(Dialect.COSCHEDULING, "ml", "train"), least=3, expected=3)
LAUNCHER: Final = pod("launcher", group=TRAIN, scheduler_name="default-scheduler", on="m5")
WORKERS: Final = [ours(f"worker-{number}", devices=16, group=TRAIN) for number in range(2)]

CLAIMING: Final = sick(
    lacking=(),
    publishing=frozenset({"trn2-dra"}),
    deployments=(deployment("my-scheduler", "run", "--claims"),),
    policies=policies(claims=True),
    policy_bindings=policies("ValidatingAdmissionPolicyBinding", claims=True),
)
NEURON: Final = DeviceKey(NEURON_DRIVER, "trn1-a", "d0")
HOLDER: Final = attrs.evolve(pod("f", on="trn1-a", scheduler_name="default-scheduler"), devices=(NEURON,))

CASES: Final[dict[str, Snapshot]] = {
    # API server
    "version-unknown": sick(version=Unread("get /version")),
    "version-too-old": sick(version="v1.32.9-eks-1"),
    "version-too-new": sick(version="v1.38.0"),
    # rights
    "reader-lacks-rights": sick(daemon_sets=FORBIDDEN),
    "request-failed": sick(daemon_sets=Unread("list daemonsets.apps", forbidden=False, reason="500")),
    "unreadable-objects": sick(malformed=("Deployment kube-system/odd: no spec",)),
    "account-rights-unknown": sick(rights=FORBIDDEN),
    "account-lacks-rights": sick(rights={"list pods": False, "watch pods": True}),
    "account-not-installed": BEFORE,
    "pod-groups-unread": sick(rights={"list pods": True, "list podgroups.scheduling.k8s.io": False}),
    # nodes
    "nodes-unknown": sick(nodes=FORBIDDEN),
    "no-neuron-nodes": sick(nodes=(node("m5"),), pods=()),
    "nodes-without-device-plugin": with_node(SPOT),
    "implausible-capacity": with_node(node("trn1-z", "trn1.32xlarge", devices=15, cores_per_device=2)),
    "unreadable-nodes": with_node(node("odd", refusal="node cannot be read: no name")),
    "devices-not-allocatable": with_node(node("trn1-z", "trn1.32xlarge", allocatable={NEURON_DEVICE: 15})),
    "unhealthy-nodes": with_node(node("trn1-z", "trn1.32xlarge", neuron_fault="NeuronHealth")),
    # device plugin
    "device-plugin-not-ready": sick(daemon_sets=(plugin(ready=2),)),
    "device-plugin-unknown": sick(daemon_sets=FORBIDDEN),
    "device-plugin-missing": sick(daemon_sets=()),
    "device-plugin-built-in": with_node(node("auto", "trn1.32xlarge", labels=dict([AUTO_MODE]))),
    "device-plugin-may-not-write": sick(daemon_sets=(plugin(account="openshift-plugin"),)),
    # claims
    "claims-unknown": sick(publishing=FORBIDDEN),
    "claims-off": sick(publishing=frozenset({"trn2-dra"})),
    "claims-policy-left": sick(policies={**POLICIES, CLAIMS: {}}),
    "nodes-with-counts-and-claims": sick(publishing=frozenset({"trn1-a"})),
    "claims-of-other-schedulers": attrs.evolve(CLAIMING, cluster=cluster_of([node("trn1-a")], [HOLDER])),
    # installation
    "installation-unknown": sick(deployments=FORBIDDEN),
    "not-installed": BEFORE,
    "scaled-to-zero": sick(deployments=(deployment(replicas=0, ready=0),)),
    "not-ready": sick(deployments=(deployment(ready=0),)),
    "partly-ready": sick(deployments=(deployment(ready=1),)),
    "rollout-unfinished": sick(deployments=(deployment(behind=1),)),
    "several-deployments": sick(deployments=(deployment(), deployment("k8s-neuron-scheduler", "extender"))),
    "another-namespace": sick(deployments=(deployment(), deployment(namespace="elsewhere"))),
    "lease-unknown": sick(lease=FORBIDDEN),
    "lease-not-held": sick(lease=None),
    "fence-stale": with_pod(ours("c", devices=1, scheduled=PodCondition("False", "SchedulerError", STALE))),
    "lease-held-by-another": sick(lease=Lease("somebody-else_0a1b", 15, 1.0)),
    # policies
    "policies-unknown": sick(policies=FORBIDDEN),
    "policies-not-installed": BEFORE,
    "policy-missing": sick(policies=without(POLICIES, NODE_NAME)),
    "policy-stale": sick(policies=rewritten(POLICIES, LEADER, "== ''", "== 'x'")),
    "policy-not-bound": sick(policy_bindings=without(BINDINGS, ALLOCATIONS)),
    "keeper-missing": sick(policies=without(POLICIES, KEEPER)),
    # capacity requests
    "capacity-requests-unknown": sick(lacking=FORBIDDEN),
    "capacity-requests-incomplete": sick(lacking=("namespaces/neuron-scheduler-capacity",)),
    # other schedulers
    "scheduler-unknown": sick(deployments=(deployment(), foreign("other-scheduler", serves=FORBIDDEN))),
    "same-scheduler-name": sick(deployments=(deployment(), foreign("other-scheduler", serves=("my-scheduler",)))),
    "extension-may-not-write": sick(deployments=(deployment(), extension())),
    "extension-runs": attrs.evolve(BEFORE, deployments=(extension(),)),
    # allocations
    "allocations-unknown": sick(pods=FORBIDDEN),
    "allocations-overlap": with_pod(ours("c", devices=4, on="trn1-a", ids=range(4))),
    "allocations-pinned": sick(pinned=("default/a",)),
    "allocations-unreadable": with_pod(ours("c", devices=4, on="trn1-b")),
    # groups of pods
    "groups": with_group(LAUNCHER, *WORKERS),
    "group-incomplete": with_group(*WORKERS),
    "group-priorities": with_group(LAUNCHER, WORKERS[0], attrs.evolve(WORKERS[1], priority=1)),
    "group-topology": with_group(ours("w", group=PodGroup(TRAIN.key, topology="rack"))),
    "groups-of-kube-scheduler": attrs.evolve(
        with_group(pod("w", group=TRAIN, scheduler_name="default-scheduler")),
        deployments=(deployment(), deployment("k8s-neuron-scheduler", "extender")),
    ),
    # scheduler names
    "pods-unknown": sick(pods=FORBIDDEN),
    "no-neuron-pods": BEFORE,
    "no-scheduler-name": with_pod(pod("c", devices=1)),
    "another-scheduler-name": attrs.evolve(
        with_pod(pod("c", devices=1, scheduler_name="theirs")),
        deployments=(deployment(), foreign("their-scheduler", serves=("theirs",))),
    ),
    "unknown-scheduler-name": with_pod(pod("c", devices=1, scheduler_name="my-schedular")),
}
WELL: Final = {
    *("version", "reader", "account-rights", "machines", "device-plugin", "deployment", "lease", "policies"),
    *("no-other-scheduler", "allocations", "scheduler-names"),
}
"""What a healthy cluster has."""
WHERE_USED: Final = {"capacity-requests", "claims"}
"""What one has that asks for machines, and whose devices are given to claims."""


def findings(snapshot: Snapshot) -> list[Finding]:
    return [finding for subject in SUBJECTS for finding in subject.findings(snapshot)]


def codes(found: Iterable[Finding]) -> set[str]:
    return {finding.code for finding in found}


def test_a_healthy_cluster_is_fine() -> None:
    """Every subject is well, and nothing else is said."""
    assert codes(findings(HEALTHY)) == WELL
    assert {finding.severity for finding in findings(HEALTHY)} == {Severity.OK}


def test_a_healthy_cluster_with_claims_that_asks_for_machines_is_fine() -> None:
    """Two subjects more are well; the policy of claims is one of those that are compared."""
    found = findings(CLAIMING)
    assert codes(found) == WELL | WHERE_USED
    assert [finding.message[:14] for finding in found if finding.code == "policies"] == ["All 5 policies"]
    without_policy = attrs.evolve(CLAIMING, policies=POLICIES)
    (missing,) = (finding for finding in findings(without_policy) if finding.code == "policy-missing")
    assert CLAIMS in missing.message


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


def test_nobody_makes_the_fence_look_stale() -> None:
    """A pod may name a claim of any name."""
    message = f'0/1 nodes are available: persistentvolumeclaim "{STALE}" not found.'
    mounting = ours("c", devices=1, scheduled=PodCondition("False", "SchedulerError", message))
    assert "fence-stale" not in codes(findings(with_pod(mounting)))


def test_every_finding_has_a_case() -> None:
    """All codes in the sources are in the table above."""
    known = {code for path in SOURCES.glob("*.py") for code in codes_in(path)}
    assert known == CASES.keys() | WELL | WHERE_USED


def codes_in(path: Path) -> set[str]:
    """Return the codes that a module's findings have."""
    known = set()
    makers = {"ok", "note", "warning", "error", "unchecked", "unknown", "make", "Finding"}
    for call in ast.walk(ast.parse(path.read_text())):
        match call:
            case ast.Call(ast.Name(maker), [ast.Constant(code), *_]) if maker in makers:
                known.add(str(code))
    return known


@pytest.mark.parametrize(
    "other", [foreign("my-scheduler", replicas=0), extension(), foreign("second", serves=("my-scheduler",))]
)
def test_nothing_is_to_be_installed_beside_another_scheduler_of_our_name(other: SeenWorkload) -> None:
    """The command would fail half way, or make a second scheduler."""
    found = {finding.code: finding for finding in findings(attrs.evolve(BEFORE, deployments=(other,)))}
    assert (found["not-installed"].command, other.key in found["not-installed"].advice) == ("", True)
    assert not any("apply" in finding.command for finding in found.values())
    harmless = findings(attrs.evolve(BEFORE, deployments=(foreign("volcano", serves=("volcano",)),)))
    assert any("apply -k manifests/" in finding.command for finding in harmless)


def test_what_cannot_be_read_is_never_fine() -> None:
    """If nothing can be read, no subject says that something is well."""
    unread: dict[str, Any] = {field.name: FORBIDDEN for field in attrs.fields(Snapshot) if "Unread" in str(field.type)}
    nothing = sick(**unread)
    assert {finding.severity for finding in findings(nothing)} == {Severity.UNCHECKED}


def test_the_page_lists_every_code() -> None:
    """docs/check.md has the codes of each subject; scripts depend on them."""
    page = (Path(__file__).parents[4] / "docs" / "check.md").read_text()
    listed = {
        subject: set(re.findall(r"`([a-z-]+)`", codes_of_it))
        for subject, codes_of_it in re.findall(r"^\| `([a-z][a-z-]*)` \| (`.*) \|$", page, re.MULTILINE)
    }
    assert listed.keys() == {subject.name for subject in SUBJECTS}
    snapshots = [HEALTHY, CLAIMING, *CASES.values()]
    assert listed == {each.name: {code for s in snapshots for code in codes(each.findings(s))} for each in SUBJECTS}
