"""The metrics, `fit` and `why` say the same numbers of one cluster; the fleet's picture does in `test_fleet`."""

import random
from typing import TypeVar

import pytest

from neuron_scheduler.explain import inventory
from neuron_scheduler.explain.fit import PodSet, Replicated, how_many_of
from neuron_scheduler.explain.waiting import waiting_pods
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import Toleration
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.steps import run
from tests.explain.test_inventory import TRN1, random_cluster
from tests.support.builders import pod
from tests.support.harness import decide
from tests.support.queueing import popped
from tests.support.thoroughness import examples

PROFILE = default_profile("my-scheduler")
USUAL = (Toleration(key=NEURON_DEVICE, exists=True),)
T = TypeVar("T")


@pytest.mark.parametrize("seed", range(examples(20)))
def test_fit_and_the_metrics_agree(seed: int) -> None:
    """`fit` places as many pods of a size on a type as the metric says."""
    cluster = random_cluster(random.Random(seed))
    counted = inventory.devices(cluster).fits
    for (name, size), count in counted.items():
        if name != "unknown":  # pods cannot select nodes without the label
            asking = pod(devices=int(size), tolerations=USUAL, node_selector={INSTANCE_TYPE_LABEL: name})
            assert (
                run(how_many_of(cluster, Replicated(0, (PodSet(asking),)), PROFILE, suggest=False)).fitting == count
            ), (name, size)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_why_and_the_metrics_agree(seed: int) -> None:
    """A refused pod waits in the queue for what `why` says."""
    dice = random.Random(seed)
    cluster = random_cluster(dice)
    asking = pod(
        "x", devices=dice.choice((3, 4, 8, 16, 32)), tolerations=USUAL, node_selector={INSTANCE_TYPE_LABEL: TRN1}
    )
    refused = decide(cluster, asking)
    if not isinstance(refused, FitError):
        return
    queue = SchedulingQueue()
    queue.add(asking, 0.0)
    queue.unschedulable(popped(queue, 0.0), refused.plugins, 0.0, cause=refused.cause)
    counted = run(waiting_pods(queue)).by_cause
    assert {str(cause): count for cause, count in counted.items() if count} == {
        run(explain_pod(cluster, asking, PROFILE)).cause: 1
    }
