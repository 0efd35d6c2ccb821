"""What follows from a pod's spec: requests, ports, and what a resize changes of them."""

from typing import Any

import pytest

from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import HostPort, Pod
from tests.support.wire_objects import container, encoded, pod

DEVICE, CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"


def read(**changes: Any) -> Pod:
    """Return the decoded pod."""
    decoded = PODS.decode(encoded(pod(**changes)))
    assert isinstance(decoded.value, Pod)
    return decoded.value


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


def test_a_request_for_neuron() -> None:
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


def test_a_mixed_request_is_refused() -> None:
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
    """Containers, sidecars and ordinary init containers are resized, whatever their restart policy."""
    spec = {
        "nodeName": "n",
        "initContainers": [container("once"), container("sidecar", restartPolicy="Always")],
        "containers": [container("main", restartPolicy="Never")],
    }

    def given(name: str, cpu: str) -> dict[str, Any]:
        return {"name": name, "resources": {"requests": {"cpu": cpu}}}

    once = {"initContainerStatuses": [given("once", "9")]}
    assert read(spec=spec, status=once).requests == {"cpu": 9000}
    assert read(spec=spec, status={"initContainerStatuses": [given("sidecar", "2")]}).requests == {"cpu": 2000}
    assert read(spec=spec, status={"containerStatuses": [given("main", "3")]}).requests == {"cpu": 3000}


def test_the_largest_sum_counts_where_one_container_grows_and_another_shrinks() -> None:
    """A container that shrinks frees its part for one that grows, as in kube-scheduler 1.37."""
    spec = {"containers": [container("a", requests={"cpu": "1"}), container("b", requests={"cpu": "4"})]}
    grown = {"name": "a", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}}
    shrunk = {"name": "b", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}

    value = read(spec={**spec, "nodeName": "n"}, status={"containerStatuses": [grown, shrunk]})

    assert value.requests == {"cpu": 5000}  # 1 + 4; 3 + 1 has been given


def test_the_sums_of_the_status_count_where_it_has_them() -> None:
    """What a kubelet reports for the whole pod is the sum of its containers, whether or not the spec has one."""
    spec = {"containers": [container(requests={"cpu": "1"})], "nodeName": "n"}
    status = {
        "resources": {"requests": {"cpu": "2"}},
        "allocatedResources": {"cpu": "3"},
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "9"}}}],
    }

    assert read(spec=spec, status=status).requests == {"cpu": 3000}


def test_a_status_without_devices_frees_none() -> None:
    """After an infeasible resize a container still has its devices, though the status does not list them."""
    spec = {"containers": [container(requests={"cpu": "9"}, limits={DEVICE: "2"})], "nodeName": "n"}
    status = {
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
    }

    assert read(spec=spec, status=status).requests == {"cpu": 3000, DEVICE: 2}


@pytest.mark.parametrize(
    ("reason", "on", "requests"),
    [
        ("Deferred", "n", {"cpu": 5000, "memory": 7}),
        ("Infeasible", "n", {"cpu": 3000, "memory": 7}),
        ("Deferred", None, {"cpu": 5000}),
    ],
)
def test_a_resize_of_the_pod_as_a_whole(reason: str, on: str | None, requests: dict[str, int]) -> None:
    """The requests of a pod as a whole are resized like a container's (InPlacePodLevelResourcesVerticalScaling)."""
    spec = {"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "5"}}, "nodeName": on}
    status = {
        "resources": {"requests": {"cpu": "2", "memory": "7"}},
        "allocatedResources": {"cpu": "3"},
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
    }

    assert read(spec=spec, status=status).requests == requests


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
