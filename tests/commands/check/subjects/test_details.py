"""What findings say and recommend, where it depends on how the cluster was installed."""

import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from neuron_scheduler.commands.check.subjects import (
    api_server,
    commands,
    installation,
    nodes as nodes_subject,
    other_schedulers,
    pods as pods_subject,
    policies as policies_subject,
)
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity
from neuron_scheduler.commands.check.subjects.known import ALLOCATIONS, KEEPER, LEADER, NAME
from neuron_scheduler.commands.check.subjects.nodes import Machines, has_neuron_type, machines
from neuron_scheduler.commands.check.subjects.snapshot import Access, Lease, Snapshot, Unread
from tests.support.builders import node, pod
from tests.support.snapshots import (
    BEFORE,
    HEALTHY,
    deployment,
    edited,
    extension,
    foreign,
    named,
    neuron_pods,
    nodes,
    ours,
    plugin,
    plugin_pod,
    policies,
    rewritten,
    without,
)

ROOT = Path(__file__).parents[4]
POLICIES = policies()
BINDINGS = policies("ValidatingAdmissionPolicyBinding")
EXTENDING = deployment("k8s-neuron-scheduler", "extender", "--config=/c", serves=())
BOTH = deployment("my-scheduler", "run", "--extender-bind-address=:12345")


def sick(**changes: Any) -> Snapshot:
    """Return the healthy cluster with some parts changed."""
    return attrs.evolve(HEALTHY, **changes)


def one(findings: Any, code: str) -> Finding:
    """Return the one finding of a code."""
    (found,) = [finding for finding in findings if finding.code == code]
    assert isinstance(found, Finding)
    return found


def codes(findings: Any) -> set[str]:
    """Return the codes of findings."""
    return {finding.code for finding in findings}


@pytest.mark.parametrize(
    ("installed", "command"),
    [
        ((), "kubectl apply -k manifests/"),
        ((deployment(),), "kubectl apply -k manifests/"),
        ((EXTENDING,), "kubectl apply -k manifests/default-scheduler"),
        ((BOTH,), "kubectl apply -k manifests/"),
    ],
    ids=["not installed", "own scheduler", "default scheduler", "both"],
)
def test_what_restores_our_objects(installed: Any, command: str) -> None:
    """It depends on the road."""
    assert commands.apply(sick(deployments=installed)) == command


def test_helm_restores_what_helm_has_installed() -> None:
    """The release is that of the Deployment."""
    place = attrs.evolve(deployment().object, release="neuron-scheduler", release_namespace="kube-system")
    helm = attrs.evolve(deployment(), object=place)
    assert commands.apply(sick(deployments=(helm,))) == (
        "helm upgrade neuron-scheduler manifests/chart --namespace kube-system --reset-then-reuse-values"
    )


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("", "kubectl delete deployment --namespace kube-system my-scheduler"),
        ("theirs", "helm uninstall theirs --namespace kube-system"),
        (
            "neuron-helm-chart",
            (
                "helm upgrade neuron-helm-chart oci://public.ecr.aws/neuron/neuron-helm-chart --namespace kube-system"
                " --reuse-values --set scheduler.enabled=false"
            ),
        ),
    ],
)
def test_how_another_scheduler_is_removed(release: str, command: str) -> None:
    """AWS's release has the device plugin too: its scheduler is switched off, and its other values stay."""
    aws = foreign("my-scheduler", serves=("my-scheduler",), release=release)
    before = attrs.evolve(BEFORE, deployments=(aws, extension(release=release)))
    found = one(other_schedulers.findings(before), "same-scheduler-name")
    assert (found.severity, found.command) == (Severity.WARNING, command)


def test_aws_release_is_named_with_its_own_namespace() -> None:
    """AWS's commands install it in `default`, wherever its objects are."""
    stolen = attrs.evolve(
        named("ClusterRole", "neuron-scheduler", release="neuron-helm-chart"), release_namespace="default"
    )
    found = one(installation.of_installation(sick(others=((stolen,),))), "owned-by-aws-release")
    assert found.command == commands.switch_off("neuron-helm-chart", "default")
    assert found.objects == ("ClusterRole neuron-scheduler",)


def test_another_scheduler_is_an_error_only_beside_ours() -> None:
    """Before the installation it is a step to do; afterwards two schedulers serve one name."""
    aws = foreign("their-scheduler", serves=("my-scheduler",))
    beside = one(other_schedulers.findings(sick(deployments=(deployment(), aws))), "same-scheduler-name")
    assert beside.severity is Severity.ERROR
    assert "same-scheduler-name" not in codes(
        other_schedulers.findings(sick(deployments=(deployment(), attrs.evolve(aws, replicas=0))))
    )


def test_rights_of_a_running_scheduler_of_aws_are_no_leftover() -> None:
    """Its ClusterRoleBindings are in use."""
    aws = foreign("my-scheduler", serves=("my-scheduler",))
    binding = attrs.evolve(
        HEALTHY.role_bindings[0],  # type: ignore[index]  # it is a tuple
        object=named("ClusterRoleBinding", "my-scheduler-as-kube-scheduler", labels={}),
        accounts=("kube-system/my-scheduler",),
    )
    assert "leftover-role-bindings" in codes(other_schedulers.findings(sick(role_bindings=(binding,))))
    assert "leftover-role-bindings" not in codes(
        other_schedulers.findings(attrs.evolve(BEFORE, role_bindings=(binding,), deployments=(aws,)))
    )


def test_the_plugins_account_is_known_from_its_pods_too() -> None:
    """If DaemonSets may not be listed, the pods name the account."""
    found = list(
        nodes_subject.of_plugin(
            sick(daemon_sets=Unread("list daemonsets.apps"), system_pods=(plugin_pod(account="another"),))
        )
    )
    assert codes(found) == {"device-plugin-may-not-write"}
    assert "system:serviceaccount:kube-system:another" in found[0].advice


def test_an_account_that_was_added_to_writers_may_write() -> None:
    """A person has changed the policy, as the finding says."""
    letting = rewritten(POLICIES, ALLOCATIONS, "kube-system:neuron-device-plugin", "neuron:plugin")
    there = attrs.evolve(plugin().object, namespace="neuron")
    moved = sick(
        policies=letting, system_pods=(), daemon_sets=(attrs.evolve(plugin(), object=there, account="plugin"),)
    )
    assert codes(nodes_subject.of_plugin(moved)) == {"device-plugin"}
    assert not codes(policies_subject.findings(moved)) - {"policies"}


@pytest.mark.parametrize("installed", [(EXTENDING,), (BOTH,)], ids=["extender", "both"])
def test_the_default_scheduler_is_right_where_we_extend_it(installed: Any) -> None:
    """Then its name is one of ours, in pods and in the policy on names."""
    pods = neuron_pods(pod("a", devices=4, on="trn1-a", ids=range(4)))
    letting = rewritten(POLICIES, NAME, "'my-scheduler'", "'my-scheduler', 'default-scheduler'")
    snapshot = sick(deployments=installed, pods=pods, policies=letting)
    assert "default-scheduler" in snapshot.scheduler_names
    assert codes(pods_subject.of_names(snapshot)) == {"scheduler-names"}
    assert codes(policies_subject.findings(snapshot)) == {"policies"}
    assert codes(policies_subject.findings(attrs.evolve(snapshot, policies=POLICIES))) == {
        "policy-without-scheduler-name"
    }


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("my-schedular", "mistyped-scheduler-name"),
        ("my-sheduler", "mistyped-scheduler-name"),
        ("myscheduler", "mistyped-scheduler-name"),
        ("My-Scheduler", "mistyped-scheduler-name"),
        ("my-batch-scheduler", "unknown-scheduler-name"),
        ("volcano", "unknown-scheduler-name"),
        ("default-scheduler", "no-scheduler-name"),
    ],
)
def test_mistyped_or_another_name(name: str, code: str) -> None:
    """A letter or two make it a mistake; a name of its own is another scheduler's."""
    found = pods_subject.of_names(sick(pods=neuron_pods(pod("a", devices=1, scheduler_name=name))))
    assert codes(found) == {code}


def test_a_name_that_the_user_gives_is_right() -> None:
    """`--scheduler-name` replaces what the installation says."""
    snapshot = sick(pods=neuron_pods(pod("a", devices=1, scheduler_name="batch")), given_names=("batch",))
    assert codes(pods_subject.of_names(snapshot)) == {"scheduler-names"}


def test_pods_without_neuron_scheduler_before_the_installation() -> None:
    """AWS's extension of the default scheduler serves pods without a name."""
    pods = neuron_pods(pod("a", devices=1))
    extended = attrs.evolve(BEFORE, pods=pods, deployments=(extension(),))
    assert codes(pods_subject.of_names(extended)) == {"default-scheduler"}
    second = foreign("my-scheduler", serves=("my-scheduler",))
    both = attrs.evolve(extended, deployments=(extension(), second))
    assert codes(pods_subject.of_names(both)) == {"no-scheduler-name"}


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
    kept = tuple(policy for policy in POLICIES if policy.object.name == KEEPER)
    (found,) = policies_subject.findings(attrs.evolve(BEFORE, policies=kept))
    assert found.severity is Severity.NOTE
    assert "is to stay" in found.message


def test_a_policy_for_another_account_says_both() -> None:
    """The account in the policy, and that of the scheduler."""
    found = one(
        policies_subject.findings(sick(policies=rewritten(POLICIES, LEADER, ":neuron-scheduler'", ":old'"))),
        "policy-for-another-account",
    )
    assert "system:serviceaccount:kube-system:old" in found.message
    assert "system:serviceaccount:kube-system:neuron-scheduler" in found.message


@pytest.mark.parametrize("code", ["not-ready", "partly-ready"])
def test_why_pods_are_not_ready(code: str) -> None:
    """The Events say so for pods without a node or an image, whose containers have no log."""
    found = one(installation.of_installation(sick(deployments=(deployment(ready=int(code == "partly-ready")),))), code)
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


def test_older_objects_are_deleted_by_kind_and_name() -> None:
    """The command names each object; policies come first, because they refuse Bindings."""
    others = (
        (named("ClusterRole", "my-scheduler"), named("ClusterRole", "my-scheduler-metrics")),
        (named("RoleBinding", "my-scheduler", namespace="kube-system"),),
        (named("ClusterRole", "my-scheduler", labels={}),),  # AWS's own
    )
    found = one(installation.of_installation(sick(others=others)), "older-objects")
    assert found.command == (
        "kubectl delete --namespace kube-system clusterrole/my-scheduler clusterrole/my-scheduler-metrics"
        " rolebinding/my-scheduler"
    )


def test_the_older_keeper_is_deleted_only_if_there_is_a_new_one() -> None:
    """Without any policy that has a Lease as parameter the API server would stop watching Leases."""
    older = attrs.evolve(POLICIES[0], object=named("ValidatingAdmissionPolicy", "my-scheduler-lease-watch"))
    found = one(installation.of_installation(sick(policies=(*POLICIES, older))), "older-objects")
    assert found.command == "kubectl delete validatingadmissionpolicy/my-scheduler-lease-watch"
    alone = sick(policies=(*without(POLICIES, KEEPER), older))
    assert "older-objects" not in codes(installation.of_installation(alone))


def test_all_missing_rights_are_named() -> None:
    """Verbs of one resource together, and each by itself for scripts."""
    missing = tuple(Access(right, allowed=False) for right in ("list pods", "watch pods", "create pods/binding"))
    found = one(installation.of_rights(sick(rights=missing)), "account-lacks-rights")
    assert found.message.endswith("lacks 3 of 3 rights: list and watch pods; create pods/binding")
    assert found.objects == ("list pods", "watch pods", "create pods/binding")


def test_what_the_reader_lacks_is_grouped_by_verb() -> None:
    """The resources of one verb and namespace together."""
    others = tuple(Unread(f"list {name} in namespace kube-system") for name in ("roles", "configmaps"))
    found = one(
        installation.of_rights(sick(others=others, nodes=Unread("list nodes"), pods=Unread("list pods"))),
        "reader-lacks-rights",
    )
    assert found.message == (
        "You lack 4 rights that the check uses: list nodes, pods; in namespace kube-system: list configmaps, roles"
    )


def test_machines_are_counted_by_type_devices_and_cores() -> None:
    """LNC makes two rows of one type; nodes without Neuron have none."""
    seen = nodes(
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


def test_a_node_without_the_plugin_is_not_one_with_dra() -> None:
    """Each gets its own finding."""
    silent = nodes(*(node(name, "trn1.32xlarge", devices=0, cores_per_device=0) for name in "ab"))
    found = list(nodes_subject.of_nodes(sick(nodes=silent, pods=(), slices=frozenset({"b"}))))
    assert one(found, "nodes-without-device-plugin").objects == ("a",)
    assert one(found, "dra-only-nodes").objects == ("b",)


def test_how_a_usage_map_contradicts_the_pods() -> None:
    """Ids of both; a map that cannot be read is shown; while a pod's ids are unknown nothing is said."""
    maps = {"NEURON_DEV_USAGE_MAP": ",".join(["true"] * 16), "NEURON_CORE_USAGE_MAP": "yes"}
    annotated = (attrs.evolve(nodes(node("trn1-a", "trn1.32xlarge"))[0], usage_maps=maps),)
    snapshot = sick(nodes=annotated, pods=neuron_pods(ours("a", devices=1, on="trn1-a", ids=(0,))))
    (found,) = pods_subject.of_maps(snapshot)
    assert found.severity is Severity.NOTE
    assert found.objects == (
        "trn1-a: NEURON_DEV_USAGE_MAP has 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15, the pods hold 0",
        "trn1-a: NEURON_CORE_USAGE_MAP has 'yes', the pods hold 0,1",
    )
    unknown = attrs.evolve(snapshot, pods=neuron_pods(ours("a", devices=1, on="trn1-a")))
    (found,) = pods_subject.of_maps(unknown)
    assert found.objects == ("trn1-a",)


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
