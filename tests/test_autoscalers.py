"""
Karpenter and Cluster Autoscaler buy nodes for the pods that a new node could help, and for no others.

Their predicates are copied here from their sources, and judge the pod as the API server has it after our patch.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
import msgspec
import pytest

from neuron_scheduler.controllers.pod_reporter import PodReporter
from neuron_scheduler.kube.writes.condition_writer import WaitingStatus, encode_patch
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.nomination import CLEAR, KEEP, Nominate, NominationChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from tests.support.builders import node, pod
from tests.support.harness import cluster_of, refusal

Object = Mapping[str, Any]
TRN1 = {INSTANCE_TYPE_LABEL: "trn1.32xlarge"}


def karpenter_provisions(pod: Object) -> bool:
    """
    Return whether Karpenter adds a node for the pod.

    `IsProvisionable` in `pkg/utils/pod/scheduling.go` of kubernetes-sigs/karpenter: `FailedToSchedule` (a condition
    PodScheduled with the reason Unschedulable; its status is ignored), and not `IsScheduled`, `IsPreempting`
    (`status.nominatedNodeName`), or owned by a DaemonSet or a Node.
    """
    reasons = [
        condition.get("reason") for condition in pod["status"]["conditions"] if condition["type"] == "PodScheduled"
    ]
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
    return (
        "Unschedulable" in reasons
        and not pod["spec"].get("nodeName")
        and not pod["status"].get("nominatedNodeName")
        and not owners & {"DaemonSet", "Node"}
    )


def cluster_autoscaler_sees(pod: Object) -> bool:
    """
    Return whether Cluster Autoscaler counts the pod as unschedulable.

    `UnschedulablePodLister.List` in `cluster-autoscaler/utils/kubernetes/listers.go` of kubernetes/autoscaler: not
    bound and not ended (its field selector), and PodScheduled False with the reason Unschedulable.
    """
    conditions = [condition for condition in pod["status"]["conditions"] if condition["type"] == "PodScheduled"]
    return (
        not pod["spec"].get("nodeName")
        and pod["status"].get("phase") not in {"Succeeded", "Failed"}
        and any(
            (condition["status"], condition.get("reason")) == ("False", "Unschedulable") for condition in conditions
        )
    )


@attrs.define(eq=False)
class Server:
    """A stand-in for recorder and condition writer: applies the writer's patch to the pod."""

    pod: dict[str, Any] = attrs.field(
        factory=lambda: {"metadata": {}, "spec": {}, "status": {"phase": "Pending", "conditions": []}}
    )

    def record(self, pod: Pod, **_: object) -> None:
        """Do nothing: neither autoscaler reads Events."""

    def set(self, pod: Pod, *, reason: str, message: str, nomination: NominationChange = KEEP) -> None:
        """Merge the patch as the API server does: conditions by type, null removes."""
        patch = msgspec.json.decode(encode_patch(pod, WaitingStatus(reason, message, nomination), now=0.0))
        status = self.pod["status"]
        conditions = {condition["type"]: condition for condition in status["conditions"]}
        for condition in patch["status"]["conditions"]:
            conditions[condition["type"]] = conditions.get(condition["type"], {}) | condition
        status["conditions"] = list(conditions.values())
        if "nominatedNodeName" in patch["status"]:
            status["nominatedNodeName"] = patch["status"]["nominatedNodeName"]

    def clear_nomination(self, pod: Pod) -> None:
        """Remove the nominated node."""
        assert pod.uid
        self.pod["status"]["nominatedNodeName"] = None

    def last(self, pod: Pod) -> WaitingStatus | None:
        """Fail: no test asks an autoscaler for a machine."""
        raise AssertionError(pod.key)

    def forget(self, uid: str) -> None:
        """Do nothing: no state is kept by uid."""

    @property
    def seen(self) -> tuple[bool, bool]:
        """The decisions of Karpenter and Cluster Autoscaler about the pod."""
        return karpenter_provisions(self.pod), cluster_autoscaler_sees(self.pod)


@pytest.fixture
def server() -> Server:
    """Return a server with the pod, without conditions."""
    return Server()


@pytest.fixture
def reporter(server: Server) -> PodReporter:
    """Return a reporter that writes to the server."""
    return PodReporter(
        recorder=cast(Any, server), conditions=cast(Any, server), clock=lambda: 0.0, may_bind=lambda: True
    )


def on_types(*names: str) -> dict[str, Any]:
    """Return a required node affinity for these instance types."""
    requirement = Requirement(INSTANCE_TYPE_LABEL, Operator.IN, names)
    return {"required_terms": (NodeSelectorTerm(expressions=(requirement,)),)}


def full(name: str = "a") -> tuple[Sequence[Node], Sequence[Pod]]:
    """Return a trn1.32xlarge and the pod that uses all of it."""
    return [node(name, "trn1.32xlarge")], [pod("all", devices=16, on=name, ids=range(16))]


EMPTY: tuple[Sequence[Node], Sequence[Pod]] = ([node("a", "trn1.32xlarge")], [])
PIECES = (
    [node("a", "trn1.32xlarge")],
    [pod(f"p{i}", devices=1, on="a", ids=(i,)) for i in range(0, 16, 4)],
)


@pytest.mark.parametrize(
    ("cluster", "pending", "bought"),
    [
        pytest.param(full(), pod(devices=8), True, id="a full fleet"),
        pytest.param(([], []), pod(devices=8), True, id="no nodes yet"),
        pytest.param(full(), pod(devices=8, node_selector=TRN1), True, id="a full fleet of the only type allowed"),
        pytest.param(PIECES, pod(devices=8), True, id="fragmentation: they see enough devices, and add nothing"),
        pytest.param(EMPTY, pod(devices=7), True, id="a count that other types serve"),
        pytest.param(EMPTY, pod(cpu=10**9), True, id="without Neuron: only they know their largest node"),
        pytest.param(EMPTY, pod(devices=7, node_selector=TRN1), False, id="a count its only type never serves"),
        pytest.param(
            EMPTY,
            pod(devices=7, **on_types("trn1.32xlarge", "trn2.48xlarge")),
            False,
            id="a count neither of its types serves",
        ),
        pytest.param(
            EMPTY, pod(devices=7, **on_types("trn1.32xlarge", "trn9.huge")), True, id="a type that nobody knows may do"
        ),
        pytest.param(EMPTY, pod(devices=2, cores=3), False, id="devices and cores in one pod"),
        pytest.param(EMPTY, pod(devices=1, resource_claims=("c",)), False, id="spec.resourceClaims"),
        pytest.param(EMPTY, pod(devices=17, node_selector=TRN1), False, id="more than its only type has"),
    ],
)
def test_refusals(
    server: Server, reporter: PodReporter, *, cluster: tuple[Sequence[Node], Sequence[Pod]], pending: Pod, bought: bool
) -> None:
    """`Unschedulable` where a new node could help (docs/decisions/0004), `SchedulerError` where none could."""
    refused = refusal(cluster_of(*cluster), pending)
    reporter.report_unschedulable(pending, refused.text, new_node_cannot_help=refused.new_node_cannot_help)
    assert server.seen == (bought, bought)
    (condition,) = server.pod["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable" if bought else "SchedulerError")
    assert condition["message"] == refused.text


def test_an_error_buys_nothing(server: Server, reporter: PodReporter) -> None:
    """A Binding that the API server refused is tried again; it is not a lack of nodes."""
    reporter.report_failure(pod(), "admission webhook denied the request")
    assert server.seen == (False, False)


def test_a_nominated_node_is_waited_for(server: Server, reporter: PodReporter) -> None:
    """While victims leave for the pod Karpenter adds nothing; once the nomination is lost, it does."""
    pending = pod(devices=8)
    reporter.report_unschedulable(
        pending, "0/1 nodes are available: 1 Insufficient cpu.", new_node_cannot_help=False, nomination=Nominate("a")
    )
    assert server.seen == (False, True)  # Cluster Autoscaler sees it, and takes the space on that node into account
    reporter.clear_nomination(pending)
    assert server.seen == (True, True)
    reporter.report_unschedulable(
        pending, "0/1 nodes are available: 1 Insufficient cpu.", new_node_cannot_help=False, nomination=Nominate("a")
    )
    reporter.report_unschedulable(
        pending, "0/1 nodes are available: 1 Insufficient cpu.", new_node_cannot_help=False, nomination=CLEAR
    )
    assert server.seen == (True, True)
