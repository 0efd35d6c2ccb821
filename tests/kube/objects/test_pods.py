"""Pods from the API server become values or are malformed; nothing unreadable counts as free."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import HostPort, Owner, Pod, PodCondition
from tests.support.wire_objects import container, encoded, pod

DEVICE, CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"


def read(**changes: Any) -> Pod:
    """Return the decoded pod."""
    decoded = PODS.decode(encoded(pod(**changes)))
    assert isinstance(decoded.value, Pod)
    return decoded.value


def test_a_plain_pod() -> None:
    """Identity, times and the fields that a decision reads."""
    decoded = PODS.decode(encoded(pod("a", metadata={"generation": 3, "labels": {"app": "x"}}, spec={"priority": 7})))

    assert (decoded.key, decoded.uid, decoded.resource_version) == ("default/a", "uid-a", "5")
    assert isinstance(decoded.value, Pod)
    value = decoded.value
    assert (
        value.key,
        value.uid,
        value.resource_version,
        value.scheduler_name,
        value.priority,
        value.observed_generation,
    ) == ("default/a", "uid-a", "5", "my-scheduler", 7, 3)
    assert value.created == 1795248000.0
    assert value.labels == {"app": "x"}
    assert not value.terminating
    assert not value.refusal


def test_the_controller_among_the_owners() -> None:
    """One owner controls the pod; the others are left out, and so are all where none does."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u"}
    other = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "v"}
    value = read(metadata={"ownerReferences": [other, {**owner, "controller": True}]}).owner

    assert value == Owner("apps/v1", "ReplicaSet", "web")
    assert read(metadata={"ownerReferences": [owner]}).owner is None
    assert read().owner is None


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, int]]] = {
    "containers are summed, cpu in thousandths": (
        {"containers": [container(requests={"cpu": "500m", "memory": "1Gi"}), container("d", requests={"cpu": "2"})]},
        {"cpu": 2500, "memory": 1 << 30},
    ),
    "numbers that were never made canonical are read too": (
        {"containers": [container(requests={"cpu": 4, "memory": 100})]},
        {"cpu": 4000, "memory": 100},
    ),
    "limits of extended resources stand in for requests, others do not": (
        {"containers": [container(limits={DEVICE: "2", "cpu": "1"})]},
        {DEVICE: 2},
    ),
    "zeros are left out": ({"containers": [container(requests={DEVICE: "0", "cpu": "1"})]}, {"cpu": 1000}),
    "the larger of starting and running counts": (
        {
            "initContainers": [
                container("i", requests={"cpu": "3"}),
                container("s", requests={"cpu": "1"}, restartPolicy="Always"),
            ],
            "containers": [container(requests={"cpu": "1"})],
        },
        {"cpu": 3000},
    ),
    "pod level amounts replace the sums, overhead is added": (
        {
            "resources": {"requests": {"cpu": "5"}},
            "overhead": {"cpu": "250m"},
            "containers": [container(requests={"cpu": "1", DEVICE: "1"})],
        },
        {"cpu": 5250, DEVICE: 1},
    ),
}


@pytest.mark.parametrize("sentence", REQUESTS)
def test_effective_requests(sentence: str) -> None:
    """Requests are those that kube-scheduler counts."""
    spec, want = REQUESTS[sentence]

    assert want == read(spec=spec).requests


def test_silicon() -> None:
    """Counts and names come in spec order: sidecars, containers, init containers."""
    value = read(
        spec={
            "initContainers": [
                container("setup", limits={DEVICE: "3"}),
                container("side", limits={DEVICE: "1"}, restartPolicy="Always"),
            ],
            "containers": [container("a", limits={DEVICE: "2"}), container("b")],
        }
    )

    assert NeuronRequest(unit=Unit.DEVICE, counts=(1, 2), total=3, init_counts=(3,)) == value.neuron
    assert value.neuron_containers == ("side", "a", "setup")


def test_mixed_silicon_is_refused() -> None:
    """Devices and cores in one pod cannot be told apart in the annotation."""
    value = read(spec={"containers": [container(limits={DEVICE: "1"}), container("d", limits={CORE: "2"})]})

    assert value.neuron is None
    assert "either devices or cores" in value.refusal
    assert value.requests == {DEVICE: 1, CORE: 2}


def test_a_resize_in_progress_counts_with_the_larger_amount() -> None:
    """The actual resources of a bound pod count, also above its spec."""
    spec = {"containers": [container(requests={"cpu": "1"})], "nodeName": "n"}
    given = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}

    assert read(spec=spec, status=given).requests == {"cpu": 3000}
    assert read(spec={**spec, "nodeName": None}, status=given).requests == {"cpu": 1000}


def test_an_infeasible_resize_counts_with_what_was_given() -> None:
    """A resize that the node cannot fulfil does not count."""
    spec = {"containers": [container(requests={"cpu": "9"})], "nodeName": "n"}
    status = {
        "containerStatuses": [
            {"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "4"}}
        ],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    }

    assert read(spec=spec, status=status).requests == {"cpu": 4000}


def test_whose_resize_counts() -> None:
    """Containers and sidecars are resized, whatever their restart policy; an ordinary init container is not."""
    spec = {
        "nodeName": "n",
        "initContainers": [container("once"), container("sidecar", restartPolicy="Always")],
        "containers": [container("main", restartPolicy="Never")],
    }

    def given(name: str, cpu: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}}

    once = {"initContainerStatuses": [given("once", "9")]}
    assert read(spec=spec, status=once).requests == {}
    assert read(spec=spec, status={"initContainerStatuses": [given("sidecar", "2")]}).requests == {"cpu": 2000}
    assert read(spec=spec, status={"containerStatuses": [given("main", "3")]}).requests == {"cpu": 3000}


def test_a_status_without_silicon_frees_none() -> None:
    """After an infeasible resize a container still has its devices, though the status does not list them."""
    spec = {"containers": [container(requests={"cpu": "9"}, limits={DEVICE: "2"})], "nodeName": "n"}
    status = {
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    }

    assert read(spec=spec, status=status).requests == {"cpu": 3000, DEVICE: 2}


@pytest.mark.parametrize(
    ("reason", "on", "cpu"),
    [("Deferred", "n", 5000), ("Infeasible", "n", 3000), ("Deferred", None, 5000)],
)
def test_a_resize_of_the_pod_as_a_whole(reason: str, on: str | None, cpu: int) -> None:
    """The requests of a pod as a whole are resized like a container's (InPlacePodLevelResourcesVerticalScaling)."""
    spec = {"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "5"}}, "nodeName": on}
    status = {
        "resources": {"requests": {"cpu": "2", "memory": "7"}},
        "allocatedResources": {"cpu": "3"},
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
    }

    assert read(spec=spec, status=status).requests == {"cpu": cpu}


def test_host_ports_of_containers_and_sidecars() -> None:
    """Only ports of containers that keep running count, and only those that are the node's."""
    ports = [{"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}]
    value = read(
        spec={
            "initContainers": [
                container("once", ports=[{"containerPort": 1, "hostPort": 1}]),
                container("s", restartPolicy="Always", ports=[{"containerPort": 2, "hostPort": 2, "protocol": "UDP"}]),
            ],
            "containers": [container(ports=[*ports, {"containerPort": 9, "hostPort": 9, "hostIP": "10.0.0.1"}])],
        }
    )

    assert (HostPort("UDP", 2), HostPort("TCP", 8080), HostPort("TCP", 9, "10.0.0.1")) == value.host_ports
    on_host = read(spec={"hostNetwork": True, "containers": [container(ports=[{"containerPort": 5}])]})
    assert (HostPort("TCP", 5),) == on_host.host_ports


@pytest.mark.parametrize(
    "key",
    [
        "AWS_NEURON_IDS",
        "NEURON_ALLOC_TIME",
        "NEURON_ALLOCATED",
        "NEURON_RESOURCE_TYPE",
        "NEURON_CORES",
        "NEURON_DEVS",
        "neuron-scheduler/allocation",
    ],
)
def test_an_allocation_annotation_is_kept(key: str) -> None:
    """Each of them is kept, whatever its value: devices of an annotation that is dropped here would count as free."""
    assert read(metadata={"annotations": {key: "?", "note": "x"}}).allocation == {key: "?"}


def test_annotations() -> None:
    """Only allocation annotations are kept, and all are measured."""
    annotations = {"AWS_NEURON_IDS": "0,1", "neuron-scheduler/allocation": "{}", "note": "ä"}
    value = read(metadata={"annotations": annotations})

    assert value.allocation == {"AWS_NEURON_IDS": "0,1", "neuron-scheduler/allocation": "{}"}
    assert value.annotations_size == 14 + 3 + 27 + 2 + 4 + 2


ADMITTED: dict[str, tuple[dict[str, Any], bool]] = {
    "bound only": ({"status": {"phase": "Pending"}}, False),
    "a start time": ({"status": {"startTime": "2026-11-22T00:00:00Z"}}, True),
    "a container": ({"status": {"containerStatuses": [{"name": "c"}]}}, True),
    "an init container": ({"status": {"initContainerStatuses": [{"name": "i"}]}}, True),
    "no containers yet": ({"status": {"containerStatuses": []}}, False),
    "handed out": ({"metadata": {"annotations": {"NEURON_ALLOCATED": "true"}}}, True),
    "not handed out": ({"metadata": {"annotations": {"NEURON_ALLOCATED": "false"}}}, False),
}


@pytest.mark.parametrize("sentence", ADMITTED)
def test_admission(sentence: str) -> None:
    """A kubelet asks the device plugin before it reports on a pod; the plugin's annotation proves it too."""
    changes, admitted = ADMITTED[sentence]
    assert read(**changes).admitted is admitted


def test_waiting_and_leaving() -> None:
    """Gates, nominations, the condition and the deletion are read."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
    value = read(
        metadata={"deletionTimestamp": "2026-11-21T08:00:00Z"},
        spec={"schedulingGates": [{"name": "g"}]},
        status={"nominatedNodeName": "n1", "conditions": [condition]},
    )

    assert value.terminating
    assert value.gates == ("g",)
    assert value.nominated_node_name == "n1"
    assert PodCondition("False", "Unschedulable", "0/1") == value.scheduled


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_terminal_pod_counts_as_gone(phase: str) -> None:
    """A pod that has ended holds nothing, also if no field selector excludes it."""
    assert Decoded("default/p", "uid-p", "5", None) == PODS.decode(encoded(pod(status={"phase": phase})))


def test_nulls_cost_nothing() -> None:
    """An explicit null in place of an optional container is an absent one."""
    spec = dict.fromkeys(
        ("initContainers", "tolerations", "affinity", "volumes", "overhead", "nodeSelector", "priority")
    )
    manifest = pod(metadata={"labels": None, "annotations": None, "deletionTimestamp": None}, spec=spec)
    manifest["status"] = None

    assert isinstance(PODS.decode(encoded(manifest)).value, Pod)


MALFORMED: dict[str, tuple[dict[str, Any], str]] = {
    "a quantity that is none": ({"containers": [container(requests={"cpu": "1x"})]}, "is not a quantity"),
    "a quantity that is a float": ({"containers": [container(requests={"cpu": 1.5})]}, "requests"),
    "a negative request": ({"containers": [container(requests={"cpu": "-1"})]}, "negative"),
    "a null for a container": ({"containers": [None]}, "containers"),
    "a label selector that cannot be read": (
        {
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "z",
                            "labelSelector": {"matchExpressions": [{"key": "k", "operator": "Near"}]},
                        }
                    ]
                }
            }
        },
        "selector",
    ),
}


@pytest.mark.parametrize("sentence", MALFORMED)
def test_malformed_pods_keep_their_identity_and_node(sentence: str) -> None:
    """A malformed pod is reported with its name, uid, node and reason."""
    spec, reason = MALFORMED[sentence]
    decoded = PODS.decode(encoded(pod("bad", spec={**spec, "nodeName": "n1"})))

    assert isinstance(decoded.value, Malformed)
    assert (decoded.key, decoded.uid, decoded.resource_version) == ("default/bad", "uid-bad", "5")
    assert (
        decoded.value.kind,
        decoded.value.key,
        decoded.value.uid,
        decoded.value.node_name,
    ) == ("Pod", "default/bad", "uid-bad", "n1")
    assert reason in decoded.value.reason


@given(st.binary())
def test_noise_never_raises(noise: bytes) -> None:
    """Whatever the bytes are, the result is a value."""
    assert isinstance(PODS.decode(noise).value, Malformed)


def test_equal_strings_are_one_object() -> None:
    """Names and labels that repeat are kept once."""
    first = read(name="a", metadata={"labels": {"app": "train"}}, spec={"nodeName": "node-1"})
    second = read(name="b", metadata={"labels": {"app": "train"}}, spec={"nodeName": "node-1"})

    assert first.node_name is second.node_name
    assert next(iter(first.labels.values())) is next(iter(second.labels.values()))
    assert first.requests is second.requests


def test_containers_that_are_alike_are_read_once() -> None:
    """Pods of one workload, and all states of one pod, have it in common: reading it is most of the work."""
    containers = [container("alike", requests={"cpu": "1", DEVICE: "4"})]
    read(spec={"containers": containers})
    pending = read(name="other", spec={"containers": containers})
    bound = read(name="other", spec={"containers": containers, "nodeName": "n1"}, metadata={"labels": {"a": "b"}})

    assert pending.requests is bound.requests
    assert pending.neuron is bound.neuron
    assert pending.neuron_containers is bound.neuron_containers


def test_a_resize_is_read_for_the_pod_that_is_resized() -> None:
    """The actual resources of one pod do not count for another with equal containers."""
    containers = [container("resized", requests={"cpu": "1"})]
    given = {"containerStatuses": [{"name": "resized", "resources": {"requests": {"cpu": "3"}}}]}

    assert read(spec={"containers": containers, "nodeName": "n1"}, status=given).requests == {"cpu": 3000}
    assert read(spec={"containers": containers, "nodeName": "n1"}).requests == {"cpu": 1000}
    assert read(spec={"containers": containers}, status=given).requests == {"cpu": 1000}
