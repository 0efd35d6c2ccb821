"""A pod in a line."""

from neuron_scheduler.explain.answers import PodSummary
from neuron_scheduler.explain.why import summary_of
from neuron_scheduler.model.resources import NEURON_DEVICE
from tests.support.builders import pod


def test_a_pod_with_neuron() -> None:
    """What people look for first."""
    asking = pod("train-0", namespace="ml", devices=(4, 4), priority=5, created=7.0, scheduler_name="my-scheduler")
    assert summary_of(asking) == PodSummary(
        "ml", "train-0", "my-scheduler", 5, 7.0, "8 Neuron devices (4 + 4)", NEURON_DEVICE, 8
    )


def test_a_pod_without_neuron() -> None:
    """It asks for nothing; where it is is known."""
    assert summary_of(pod("web", on="n1")) == PodSummary("default", "web", "default-scheduler", node_name="n1")
