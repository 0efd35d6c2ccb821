"""What findings say and recommend, where it depends on how the cluster was installed."""

import re
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.commands.check.subjects import (
    api_server,
    commands,
    groups,
    installation,
    nodes as nodes_subject,
    other_schedulers,
    pods as pods_subject,
    policies as policies_subject,
)
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity
from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, KEEPER, LEADER, NAME, NODE_NAME
from neuron_scheduler.commands.check.subjects.nodes import Machines, has_neuron_type, machines
from neuron_scheduler.commands.check.subjects.snapshot import Lease, SeenWorkload, Unread
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup, PodGroupObject
from tests.support.builders import node, pod
from tests.support.snapshots import (
    BEFORE,
    deployment,
    edited,
    extension,
    foreign,
    ours,
    plugin,
    policies,
    rewritten,
    sick,
    without,
)

ROOT = Path(__file__).parents[4]
POLICIES = policies()
BINDINGS = policies("ValidatingAdmissionPolicyBinding")
LEASE = {"name": "my-scheduler", "namespace": "kube-system", "parameterNotFoundAction": "Allow"}
EXTENDING = deployment("k8s-neuron-scheduler", "extender", "--config=/c", serves=())
BOTH = deployment("my-scheduler", "run", "--extender-bind-address=:12345")


def one(findings: Any, code: str) -> Finding:
    """Return the one finding of a code."""
    (found,) = [finding for finding in findings if finding.code == code]
    assert isinstance(found, Finding)
    return found


def codes(findings: Any) -> set[str]:
    return {finding.code for finding in findings}


@pytest.mark.parametrize(
    ("installed", "command"),
    [
        ((), "kubectl apply -k manifests/"),
        ((deployment(),), "kubectl apply -k manifests/"),
        ((EXTENDING,), "kubectl apply -k manifests/"),
        ((BOTH,), "kubectl apply -k manifests/"),
    ],
    ids=["not installed", "own scheduler", "default scheduler", "both"],
)
def test_what_restores_our_objects(installed: Any, command: str) -> None:
    """The kustomization of the person who installs says which road it is."""
    assert commands.apply(sick(deployments=installed)) == command


def test_helm_restores_what_helm_has_installed() -> None:
    """The release is that of the Deployment."""
    helm = deployment(release="neuron-scheduler", release_namespace="kube-system")
    assert commands.apply(sick(deployments=(helm,))) == (
        "helm upgrade neuron-scheduler manifests/chart --namespace kube-system --reset-then-reuse-values"
    )


def test_a_namespace_in_the_kustomization_is_removed_before_it_is_applied_again() -> None:
    """It would move the rights away from the installation, each time."""
    moved = sick(deployments=(deployment(), deployment(namespace="x")), rights={"list pods": False})
    again = "sed -i.bak '/^namespace:/d' manifests/kustomization.yaml && kubectl apply -k manifests/"
    assert one(installation.of_rights(moved), "account-lacks-rights").command == again
    found = one(installation.of_installation(moved), "another-namespace")
    assert found.severity is Severity.ERROR
    assert found.command.startswith(f"{again} && kubectl delete deployment,service,configmap,")
    assert found.command.endswith(" --namespace x --selector app.kubernetes.io/name=neuron-scheduler")


@pytest.mark.parametrize("copy", [EXTENDING, deployment("a-copy")], ids=["both ways", "a copy"])
def test_two_deployments_compete_for_one_lease(copy: SeenWorkload) -> None:
    """Whatever their names; one without replicas is to be deleted, and never scaled up beside the other."""
    found = one(installation.of_installation(sick(deployments=(deployment(), copy))), "several-deployments")
    assert (found.severity, found.objects) == (Severity.ERROR, ("kube-system/my-scheduler", copy.key))
    stopped = sick(deployments=(deployment(), attrs.evolve(copy, replicas=0, ready=0)))
    assert "several-deployments" not in codes(installation.of_installation(stopped))
    found = one(installation.of_installation(stopped), "scaled-to-zero")
    assert (found.severity, found.command, "delete" in found.advice) == (Severity.WARNING, "", True)


def test_pods_that_wait_for_a_scheduler_that_does_not_run() -> None:
    """It is not installed, or has no replicas; without such pods, neither is a fault that stops anything."""
    waits = ours("waits", devices=1)
    absent = attrs.evolve(BEFORE, pods=(waits, ours("bound", devices=1, on="trn1-a")))
    found = one(installation.of_installation(absent), "not-installed")
    assert (found.severity, found.objects) == (Severity.WARNING, ("default/waits",))
    assert found.message == "neuron-scheduler is not installed, and 1 pod waits for it"
    served = attrs.evolve(absent, deployments=(foreign("my-scheduler", serves=("my-scheduler",)),))
    assert one(installation.of_installation(served), "not-installed").severity is Severity.NOTE
    stopped = deployment(replicas=0, ready=0)
    for pods, severity in ((waits,), Severity.ERROR), ((), Severity.WARNING):
        found = one(installation.of_installation(sick(deployments=(stopped,), pods=pods)), "scaled-to-zero")
        assert (found.severity, len(found.objects)) == (severity, len(pods))


@pytest.mark.parametrize(
    ("release", "chart", "command"),
    [
        ("", "", "kubectl delete deployment --namespace kube-system my-scheduler"),
        ("theirs", "neuron-helm-chart-1.7.0", "helm uninstall theirs --namespace kube-system"),
        (
            "neuron-helm-chart",
            "neuron-helm-chart-1.7.0",
            (
                "helm upgrade neuron-helm-chart oci://public.ecr.aws/neuron/neuron-helm-chart --namespace kube-system"
                " --version 1.7.0 --reuse-values --set scheduler.enabled=false"
            ),
        ),
        ("neuron-helm-chart", "", ""),
    ],
)
def test_how_another_scheduler_is_removed(release: str, chart: str, command: str) -> None:
    """AWS's release has the device plugin too: its scheduler is switched off; other values and its version stay."""
    helm = {"release": release, "release_namespace": release and "kube-system", "chart": chart}
    aws = foreign("my-scheduler", serves=("my-scheduler",), **helm)
    before = attrs.evolve(BEFORE, deployments=(aws, extension(release=release)))
    found = one(other_schedulers.findings(before), "same-scheduler-name")
    assert (found.severity, found.command) == (Severity.WARNING, command)


def test_another_scheduler_is_an_error_only_beside_ours() -> None:
    """Before the installation it is a step to do; afterwards two schedulers serve one name."""
    aws = foreign("their-scheduler", serves=("my-scheduler",))
    beside = one(other_schedulers.findings(sick(deployments=(deployment(), aws))), "same-scheduler-name")
    assert beside.severity is Severity.ERROR
    assert "same-scheduler-name" not in codes(
        other_schedulers.findings(sick(deployments=(deployment(), attrs.evolve(aws, replicas=0))))
    )


def test_an_account_that_was_added_to_writers_may_write() -> None:
    """A person has changed the policy, as the finding says; AWS's extension may be there in the same way."""
    moved = sick(daemon_sets=(plugin(namespace="neuron", account="plugin"),), deployments=(deployment(), extension()))
    found = one(nodes_subject.of_plugin(moved), "device-plugin-may-not-write")
    assert "system:serviceaccount:neuron:plugin" in found.advice
    assert found.command == "", "an edit would be undone by the next apply"
    assert codes(other_schedulers.findings(moved)) == {"extension-may-not-write"}
    more = "neuron:plugin', 'system:serviceaccount:kube-system:k8s-neuron-scheduler"
    letting = attrs.evolve(moved, policies=rewritten(POLICIES, ALLOCATIONS, "kube-system:neuron-device-plugin", more))
    assert codes(nodes_subject.of_plugin(letting)) == {"device-plugin"}
    assert codes(other_schedulers.findings(letting)) == {"no-other-scheduler"}
    assert codes(policies_subject.findings(letting)) == {"policies"}


def test_before_the_installation_the_plugins_account_is_a_step_to_do() -> None:
    """Our policy would not let it write."""
    found = one(
        nodes_subject.of_plugin(attrs.evolve(BEFORE, daemon_sets=(plugin(account="mine"),))),
        "device-plugin-may-not-write",
    )
    assert found.severity is Severity.WARNING
    assert found.advice.startswith("Before you install, add 'system:serviceaccount:kube-system:mine' to ")


@pytest.mark.parametrize("installed", [(EXTENDING,), (BOTH,)], ids=["extender", "both"])
def test_the_default_scheduler_is_right_where_we_extend_it(installed: Any) -> None:
    """Then its name is one of ours, in pods and in the policy on names."""
    pods = (pod("a", devices=4, on="trn1-a", ids=range(4)),)
    letting = rewritten(POLICIES, NAME, "'my-scheduler'", "'my-scheduler', 'default-scheduler'")
    snapshot = sick(deployments=installed, pods=pods, policies=letting)
    assert "default-scheduler" in snapshot.scheduler_names
    assert codes(pods_subject.of_names(snapshot)) == {"scheduler-names"}
    assert codes(policies_subject.findings(snapshot)) == {"policies"}
    stale = one(policies_subject.findings(attrs.evolve(snapshot, policies=POLICIES)), "policy-stale")
    assert "its names differ" in stale.message
    assert "default-scheduler into `names`" in stale.advice


def test_a_name_that_the_user_gives_is_right() -> None:
    """`--scheduler-name` replaces what the installation says."""
    snapshot = sick(pods=(pod("a", devices=1, scheduler_name="batch"),), given_names=("batch",))
    assert codes(pods_subject.of_names(snapshot)) == {"scheduler-names"}


def test_pods_without_neuron_scheduler_before_the_installation() -> None:
    """AWS's extension of the default scheduler serves pods without a name."""
    pods = (pod("a", devices=1),)
    extended = attrs.evolve(BEFORE, pods=pods, deployments=(extension(),))
    assert codes(pods_subject.of_names(extended)) == {"another-scheduler-name"}
    second = foreign("my-scheduler", serves=("my-scheduler",))
    both = attrs.evolve(extended, deployments=(extension(), second))
    assert codes(pods_subject.of_names(both)) == {"no-scheduler-name"}
    alone = attrs.evolve(extended, deployments=(foreign("kube-scheduler", serves=("default-scheduler",)),))
    assert codes(pods_subject.of_names(alone)) == {"no-scheduler-name"}


def test_a_warning_or_a_refusal_by_the_policy_on_names_is_a_choice() -> None:
    """components/require-scheduler refuses."""
    denying = edited(BINDINGS, NAME, validationActions=["Deny"])
    assert codes(policies_subject.findings(sick(policy_bindings=denying))) == {"policies"}


def test_the_keeper_needs_its_binding() -> None:
    """A policy that is not bound does not keep the watch."""
    found = policies_subject.findings(sick(policy_bindings=without(BINDINGS, KEEPER)))
    assert one(found, "keeper-missing").command == "kubectl apply -k manifests/lease-watch"


def test_after_the_removal_the_keeper_stays() -> None:
    """That is as it should be, and no policy is missing."""
    (found,) = policies_subject.findings(attrs.evolve(BEFORE, policies={KEEPER: POLICIES[KEEPER]}))
    assert found.severity is Severity.NOTE
    assert "is to stay" in found.message


@pytest.mark.parametrize(
    ("name", "part", "fields"),
    [
        (ALLOCATIONS, "validationActions", {"validationActions": ["Audit"]}),
        (NODE_NAME, "matchResources", {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}),
        (NAME, "policyName", {"policyName": "another"}),
        (LEADER, "paramRef", {"paramRef": LEASE | {"name": "another"}}),
        (LEADER, "paramRef", {"paramRef": LEASE | {"parameterNotFoundAction": "Deny"}}),
    ],
)
def test_a_binding_that_is_not_ours(name: str, part: str, fields: dict[str, Any]) -> None:
    """It only warns, leaves out namespaces, binds another policy or reads another Lease: the part is named."""
    found = one(policies_subject.findings(sick(policy_bindings=edited(BINDINGS, name, **fields))), "policy-not-bound")
    assert found.severity is Severity.ERROR
    assert name in found.message
    assert f"its {part} differ" in found.message


def test_a_fence_that_may_have_been_lifted_on_purpose() -> None:
    """Then the command would let pods wait again, so it is not one to copy; nobody lifts the other policies."""
    lifted = one(policies_subject.findings(sick(policy_bindings=without(BINDINGS, LEADER))), "policy-not-bound")
    assert (lifted.command, lifted.advice.partition(".")[2]) == ("", " Otherwise: kubectl apply -k manifests/")
    unbound = one(policies_subject.findings(sick(policy_bindings=without(BINDINGS, NAME))), "policy-not-bound")
    assert unbound.command == "kubectl apply -k manifests/"


def test_a_policy_for_another_account_is_stale() -> None:
    """It refuses our scheduler, or does not protect from others."""
    another = rewritten(POLICIES, LEADER, ":neuron-scheduler'", ":old'")
    assert (
        "its matchConditions and validations differ"
        in one(policies_subject.findings(sick(policies=another)), "policy-stale").message
    )


@pytest.mark.parametrize(
    ("code", "counts"),
    [("not-ready", {"ready": 0}), ("partly-ready", {"ready": 1}), ("rollout-unfinished", {"behind": 1})],
)
def test_why_pods_are_not_ready(code: str, counts: dict[str, Any]) -> None:
    """The Events say so for pods without a node or an image, whose containers have no log."""
    found = one(installation.of_installation(sick(deployments=(deployment(**counts),))), code)
    assert found.command == (
        "kubectl describe pods --namespace kube-system --selector app.kubernetes.io/name=neuron-scheduler"
    )


@pytest.mark.parametrize(
    ("lease", "text"),
    [
        (None, "does not exist"),
        (Lease("", 15, 1.0), "is held by nobody"),
        (Lease("my-scheduler-a-b_c", 15, 31.0), "was last renewed 31 s ago, by my-scheduler-a-b_c"),
    ],
    ids=["absent", "released", "expired"],
)
def test_a_lease_that_nobody_holds(lease: Lease | None, text: str) -> None:
    """Nothing is scheduled, and the log says why."""
    found = one(installation.of_installation(sick(lease=lease)), "lease-not-held")
    assert text in found.message
    assert found.command == "kubectl logs --namespace kube-system deployment/my-scheduler --all-pods"


@pytest.mark.parametrize("age", [30.0, -20.0, None])
def test_clocks_may_differ_a_little(age: float | None) -> None:
    """A Lease counts as expired after twice its duration; an unreadable time never does."""
    assert "lease" in codes(installation.of_installation(sick(lease=Lease("my-scheduler-a-b_c", 15, age))))


def test_without_election_the_lease_does_not_matter() -> None:
    """A single replica without a Lease."""
    alone = deployment("my-scheduler", "run", "--leader-elect=false")
    assert codes(installation.of_installation(sick(deployments=(alone,), lease=None))) == {"deployment"}


def test_machines_are_counted_by_type_devices_and_cores() -> None:
    """LNC makes two rows of one type; nodes without Neuron have none."""
    seen = (
        node("a", "trn2.48xlarge", cores_per_device=4),
        node("b", "ml.trn2.48xlarge", cores_per_device=8),
        node("c", "trn2.48xlarge", cores_per_device=4),
        node("d", "m5.large"),
    )
    assert machines(seen) == (Machines("trn2.48xlarge", 2, 16, 64), Machines("trn2.48xlarge", 1, 16, 128))


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [("trn1.32xlarge", True), ("ml.trn1.32xlarge", True), ("inf9.large", True), ("m5.large", False), ("info", False)],
)
def test_instance_types_with_neuron(instance_type: str, *, expected: bool) -> None:
    """Those of the catalog, and newer ones of its families."""
    assert has_neuron_type(node("n", instance_type, devices=0, cores_per_device=0)) is expected


def test_the_supported_versions_are_the_documented_ones() -> None:
    """Three places say which versions of Kubernetes the scheduler is for."""
    oldest, newest = (".".join(map(str, version)) for version in (api_server.OLDEST, api_server.NEWEST))
    assert f"{oldest} to {newest}" in (ROOT / "README.md").read_text()
    chart = (ROOT / "manifests" / "chart" / "Chart.yaml").read_text()
    assert re.findall(r"^kubeVersion: .*?(\d+\.\d+)\.0", chart, re.MULTILINE) == [oldest]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("v1.33.0", "version"),
        ("v1.37.2", "version"),
        ("v1.34.7-eks-113cf36", "version"),
        ("v1.37.2+sandbox", "version"),
        ("v1.32.99", "version-too-old"),
        ("v1.9.0", "version-too-old"),
        ("v1.38.0-alpha.1", "version-too-new"),
        ("v2.0.0", "version-too-new"),
        ("main", "version-unknown"),
    ],
)
def test_versions(version: str, code: str) -> None:
    """Numbers are compared, whatever a distribution adds."""
    assert [finding.code for finding in api_server.findings(sick(version=version))] == [code]


# -- groups ------------------------------------------------------------------------------------------------------------

TRAIN: Final = PodGroup(GroupKey(Dialect.COSCHEDULING, "ml", "train"), least=3, expected=3)
THEIRS: Final = pod("launcher", group=TRAIN, scheduler_name="default-scheduler")


def groups_found(*members: Pod, **fields: Any) -> dict[str, tuple[str, ...]]:
    """Return what is found of groups, by code, with the objects."""
    snapshot = sick(members=members, **{"taken": 3600.0} | fields)
    return {finding.code: finding.objects for finding in groups.findings(snapshot)}


def test_a_launcher_counts_and_members_that_were_just_created_are_waited_for() -> None:
    """It asks for no Neuron, and may be another scheduler's; a group is given ten minutes since its last member."""
    workers = [ours(f"worker-{number}", group=TRAIN, created=2000.0 + number) for number in range(2)]
    assert groups_found(*workers) == {"group-incomplete": ("ml/train: 2 of 3",)}
    assert groups_found(*workers, taken=2600.0) == groups_found(*workers, THEIRS) == {"groups": ()}
    inferred = PodGroup(GroupKey(Dialect.LEADER_WORKER_SET, "ml", "serve"), expected=3)
    assert groups_found(ours("leader", group=inferred)) == {"groups": ()}


def test_a_pod_group_has_the_count() -> None:
    """Where there are PodGroups, a pod that has none waits for its own."""
    member, objects = ours("w", group=PodGroup(TRAIN.key)), (PodGroupObject("u", TRAIN),)
    assert groups_found(member, pod_groups=objects) == {"group-incomplete": ("ml/train: 1 of 3",)}
    other = (PodGroupObject("u", PodGroup(attrs.evolve(TRAIN.key, name="other"), 3, 3)),)
    assert groups_found(member, pod_groups=other) == {"group-incomplete": ("ml/train: no PodGroup",)}
    assert groups_found(member) == {"groups": ()}


def test_only_members_that_wait_for_us_matter() -> None:
    """A group that runs, or is kube-scheduler's, is no fault; nor is a topology while the nodes are unread."""
    running = [ours(f"w-{priority}", group=TRAIN, on="trn1-a", priority=priority) for priority in (0, 5)]
    assert groups_found(*running, THEIRS) == {}
    assert groups_found(*running, ours("w", group=TRAIN)) == {"groups": ()}
    extender = deployment("k8s-neuron-scheduler", "extender")
    assert groups_found(THEIRS, deployments=(extender,)) == {"groups-of-kube-scheduler": ("ml/train",)}
    strict = ours("w", group=PodGroup(TRAIN.key, topology="rack"))
    assert groups_found(strict) == {"group-topology": ("ml/train: rack",)}
    assert groups_found(strict, nodes=Unread("list nodes")) == {"groups": ()}
