"""The metrics, `fit`, `why` and the fleet's picture say the same numbers of one cluster."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

import pytest

from neuron_scheduler.explain import inventory
from neuron_scheduler.explain.fit import how_many
from neuron_scheduler.explain.fleet import fleet
from neuron_scheduler.explain.waiting import waiting_pods
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import Toleration
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from tests.explain.test_inventory import TRN1, random_cluster
from tests.support.builders import pod
from tests.support.harness import decide
from tests.support.queueing import popped
from tests.support.thoroughness import examples

PROFILE = default_profile("my-scheduler")
USUAL = (Toleration(key=NEURON_DEVICE, exists=True),)
T = TypeVar("T")


def last(steps: Iterator[T | None]) -> T:
    """Return the answer of a question."""
    *_, answer = steps
    assert answer is not None
    return answer


@pytest.mark.parametrize("seed", range(examples(20)))
def test_fit_and_the_metrics_agree(seed: int) -> None:
    """`fit` places as many pods of a size on a type as the metric says."""
    cluster = random_cluster(random.Random(seed))
    counted = inventory.devices(cluster).fits
    for (name, size), count in counted.items():
        if name != "unknown":  # pods cannot select nodes without the label
            asking = pod(devices=int(size), tolerations=USUAL, node_selector={INSTANCE_TYPE_LABEL: name})
            assert last(how_many(cluster, asking, PROFILE, replicas=0, suggest=False)).fitting == count, (name, size)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_the_fleet_and_the_metrics_agree(seed: int) -> None:
    """The picture's blocks and sums are those of the metrics."""
    cluster = random_cluster(random.Random(seed))
    counted, shown = inventory.devices(cluster), last(fleet(cluster))
    blocks: Counter[tuple[str, str]] = Counter()
    for machine in shown.machines:
        blocks.update((machine.instance_type, str(size)) for size in machine.free_blocks)
    assert blocks == +counted.blocks
    for kind in shown.types:
        assert (kind.free, kind.used) == (counted.free[kind.instance_type], counted.used[kind.instance_type])


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
    counted = last(waiting_pods(queue)).by_cause
    assert {str(cause): count for cause, count in counted.items() if count} == {
        last(explain_pod(cluster, asking, PROFILE)).cause: 1
    }
