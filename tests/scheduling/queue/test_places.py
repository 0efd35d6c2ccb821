"""A heap from which any pod can be removed: best first, with memory in proportion to its pods."""

from random import Random

import pytest

from neuron_scheduler.scheduling.queue.places import PodHeap, QueuedPod
from tests.support.builders import pod
from tests.support.thoroughness import examples


def queued(name: object) -> QueuedPod:
    return QueuedPod(pod(str(name)), since=0.0)


@pytest.mark.parametrize("seed", range(examples(10)))
def test_it_is_what_a_sorted_list_is(seed: int) -> None:
    """After any pushes and removals the first pod has the least key, and of equal keys was pushed first."""
    dice, heap, there = Random(seed), PodHeap(), dict[QueuedPod, tuple[int, int]]()
    for number in range(2_000):
        if there and dice.random() < dice.choice([0.3, 0.7]):
            gone = dice.choice(list(there)) if dice.random() < 0.5 else min(there, key=lambda queued: there[queued])
            del there[gone]
            heap.discard(gone)
            heap.discard(gone)
        else:
            came, key = queued(number), dice.randint(0, 9)
            there[came] = (key, number)
            heap.push(came, key)
        assert heap.first() is min(there, key=lambda queued: there[queued], default=None)
        assert (len(heap), list(heap)) == (len(there), list(there))
        assert len(heap._entries) <= 2 * len(heap) + 65
