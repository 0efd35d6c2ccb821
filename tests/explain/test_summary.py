"""A pod in a line."""

import pytest

from neuron_scheduler.explain.answers.explanation import PodSummary
from neuron_scheduler.explain.summary import asked, summary_of
from neuron_scheduler.model.neuron_request import NeuronRequest
from neuron_scheduler.model.resources import NEURON_DEVICE
from tests.support.builders import pod, request


def test_a_pod_with_neuron() -> None:
    """What people look for first."""
    asking = pod("train-0", namespace="ml", devices=(4, 4), priority=5, created=7.0, scheduler_name="my-scheduler")
    assert summary_of(asking) == PodSummary(
        "ml", "train-0", "my-scheduler", 5, 7.0, "8 Neuron devices (4 + 4)", NEURON_DEVICE, 8
    )


def test_a_pod_without_neuron() -> None:
    """It asks for nothing; where it is is known."""
    assert summary_of(pod("web", on="n1")) == PodSummary("default", "web", "default-scheduler", node_name="n1")


@pytest.mark.parametrize(
    ("asks", "want"),
    [
        (request(1), "1 Neuron device"),
        (request(cores=3), "3 Neuron cores"),
        (request((1,) * 9), "9 Neuron devices"),
        (request(1, init=(4,)), "4 Neuron devices"),
    ],
)
def test_what_it_asks_for(asks: NeuronRequest, want: str) -> None:
    """Containers are listed if there are a few that run side by side."""
    assert asked(asks) == want
