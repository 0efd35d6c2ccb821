"""A size on the command line or in a query is a pod like one in a file."""

import pytest

from neuron_scheduler.capture.sizes import workload_of_size
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Effect, Taint
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.telemetry.errors import ConfigurationError
from tests.support.builders import node

PROFILE = default_profile("my-scheduler")


def template_of(**size: str) -> Pod:
    """Return a pod of this size."""
    (pod_set,) = workload_of_size(size, namespace="ml", scheduler_name="my-scheduler").pod_sets
    return pod_set.template


def fits(cluster: Cluster, **size: str) -> bool:
    """Return whether a pod of this size fits."""
    return isinstance(schedule_pod(cluster, template_of(**size), PROFILE), Decision)


def test_amounts_are_quantities() -> None:
    """As in a pod's spec."""
    template = template_of(devices="8", cpu="1500m", memory="2Gi")
    assert dict(template.requests) == {"aws.amazon.com/neuron": 8, "cpu": 1500, "memory": 2 << 30}
    assert (template.namespace, template.scheduler_name) == ("ml", "my-scheduler")
    assert template_of(cpu="1", schedulerName="theirs").scheduler_name == "theirs"


def test_several_containers() -> None:
    """Each has its own count; cpu and memory are the first one's."""
    template = template_of(devices="4,2", cpu="3")
    assert template.neuron is not None
    assert (template.neuron.counts, template.requests["cpu"]) == ((4, 2), 3000)


@pytest.mark.parametrize("label", ["trn1.32xlarge", "ml.trn1.32xlarge"])
def test_an_instance_type(label: str) -> None:
    """It is required, by either of its names."""
    cluster = Cluster()
    cluster.put_node(node("n", label))
    assert fits(cluster, devices="8", instanceType="trn1.32xlarge")
    assert not fits(cluster, devices="8", instanceType="trn2.48xlarge")
    assert INSTANCE_TYPE_LABEL in str(template_of(devices="8", instanceType="x").constraints)


def test_usual_taints_are_tolerated() -> None:
    """Those of Neuron nodes are; any other is not."""
    cluster = Cluster()
    cluster.put_node(node("n", "trn1.32xlarge", taints=(Taint("aws.amazon.com/neuron", Effect.NO_SCHEDULE, "true"),)))
    assert fits(cluster, devices="8")
    cluster.put_node(node("n", "trn1.32xlarge", taints=(Taint("team", Effect.NO_SCHEDULE, "a"),)))
    assert not fits(cluster, devices="8")


@pytest.mark.parametrize(
    ("size", "want"),
    [
        ({}, "say what a pod asks for"),
        ({"devices": "-1"}, "devices: '-1' is no number from 1 to 10000"),
        ({"devices": "1,0"}, "devices: '0' is no number"),
        ({"cores": "1" * 30}, "cores: '1"),
        ({"devices": ",".join("1" * 17)}, "17 containers"),
        ({"devices": "1", "cores": "1"}, "a pod's Neuron ids are either devices or cores"),
        ({"cpu": "much"}, "its pod cannot be read: "),
    ],
)
def test_bad_sizes(size: dict[str, str], want: str) -> None:
    """One sentence each."""
    with pytest.raises(ConfigurationError, match=want):
        template_of(**size)
