"""A size on the command line or in a query is a pod like one in a file."""

from typing import Any

import pytest

from neuron_scheduler.capture.sizes import purchases, sized
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.builders import node

PROFILE = default_profile("my-scheduler")


def fits(cluster: Cluster, **size: Any) -> bool:
    """Return whether a pod of this size fits."""
    (pod_set,) = sized(**size).pod_sets
    return isinstance(schedule_pod(cluster, pod_set.template, PROFILE), Decision)


def test_amounts_are_quantities() -> None:
    """As in a pod's spec."""
    workload = sized(devices=(8,), cpu="1500m", memory="2Gi", replicas=3, namespace="ml", scheduler_name="my-scheduler")
    (pod_set,) = workload.pod_sets
    template = pod_set.template
    assert dict(template.requests) == {"aws.amazon.com/neuron": 8, "cpu": 1500, "memory": 2 << 30}
    assert (workload.replicas, template.namespace, template.scheduler_name) == (3, "ml", "my-scheduler")


def test_several_containers() -> None:
    """Each has its own count; cpu and memory are the first one's."""
    template = sized(devices=(4, 2), cpu="3").pod_sets[0].template
    assert template.neuron is not None
    assert (template.neuron.counts, template.requests["cpu"]) == ((4, 2), 3000)


@pytest.mark.parametrize("label", ["trn1.32xlarge", "ml.trn1.32xlarge"])
def test_an_instance_type(label: str) -> None:
    """It is required, by either of its names."""
    cluster = Cluster()
    cluster.put_node(node("n", label))
    assert fits(cluster, devices=(8,), instance_type="trn1.32xlarge")
    assert not fits(cluster, devices=(8,), instance_type="trn2.48xlarge")
    assert INSTANCE_TYPE_LABEL in str(sized(devices=(8,), instance_type="x").pod_sets[0].template.constraints)


def test_usual_taints_are_tolerated() -> None:
    """Those of Neuron nodes are; any other is not."""
    cluster = Cluster()
    cluster.put_node(node("n", "trn1.32xlarge", taints=(Taint("aws.amazon.com/neuron", Effect.NO_SCHEDULE, "true"),)))
    assert fits(cluster, devices=(8,))
    cluster.put_node(node("n", "trn1.32xlarge", taints=(Taint("team", Effect.NO_SCHEDULE, "a"),)))
    assert not fits(cluster, devices=(8,))


@pytest.mark.parametrize(
    ("size", "want"),
    [
        ({}, "say what a pod asks for"),
        ({"devices": (-1,)}, "devices: -1 is no number from 0"),
        ({"cores": (10**30,)}, "cores: 1"),
        ({"devices": (1,), "replicas": 20_000}, "replicas: 20000"),
        ({"devices": (1,) * 17}, "17 containers"),
        ({"devices": (1,), "cores": (1,)}, "a pod's Neuron ids are either devices or cores"),
        ({"cpu": "much"}, "its pod cannot be read: "),
    ],
)
def test_bad_sizes(size: dict[str, Any], want: str) -> None:
    """One sentence each."""
    with pytest.raises(ConfigurationError, match=want):
        sized(**size)


def test_purchases() -> None:
    """A number and a type, with commas between several."""
    assert purchases("2xtrn1.32xlarge, inf2.xlarge,3xml.trn2.48xlarge") == (
        (2, "trn1.32xlarge"),
        (1, "inf2.xlarge"),
        (3, "trn2.48xlarge"),
    )
    assert purchases("") == ()


@pytest.mark.parametrize("text", ["2", "0xtrn1.32xlarge", "999xtrn1.32xlarge", "x", "2x\x1b[2J.a", "a.b," * 9])
def test_bad_purchases(text: str) -> None:
    """One printable sentence each."""
    with pytest.raises(ConfigurationError) as caught:
        purchases(text)
    assert str(caught.value).isprintable()
