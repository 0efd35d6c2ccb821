"""The queue signals when it is worth to pop again, and only then."""

from copy import deepcopy
from math import inf
from random import Random

import attrs
import pytest

from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.scheduling.queue.scheduling_queue import BINDER, SchedulingQueue
from tests.support.builders import pod
from tests.support.queueing import AFFINITY, FIT, GONE, new_queue, queue_of, refuse_all

PLUGINS = (FIT, AFFINITY, frozenset({BINDER}), frozenset({"VolumeBinding"}))


@attrs.define(eq=False)
class Waiting:
    """A queue, and whether it has signalled since it was last popped empty."""

    dice: Random
    queue: SchedulingQueue = attrs.field(factory=new_queue)
    now: float = 0.0
    signalled: bool = False
    in_flight: list[QueuedPod] = attrs.field(factory=list)

    def signal(self) -> None:
        self.signalled = True

    def put_back(self, queued: QueuedPod) -> None:
        if self.dice.random() < 0.2:
            self.queue.put_back_failed(queued, self.now)
        else:
            is_preempting = self.dice.random() < 0.2
            self.queue.put_back_refused(queued, self.dice.choice(PLUGINS), self.now, is_preempting=is_preempting)

    def pop_all(self) -> None:
        """Try all pods that can be tried, and put most of them back."""
        while (queued := self.queue.pop(self.now)) is not None:
            if self.dice.random() < 0.2:
                self.queue.keep_events(queued)
            if self.dice.random() < 0.8:
                self.put_back(queued)
            else:
                self.in_flight.append(queued)

    def change(self) -> None:
        """Make one random change."""
        name = f"p{self.dice.randrange(6)}"
        gates = ("wait",) if self.dice.random() < 0.2 else ()
        seen = pod(
            name, priority=self.dice.randrange(3), cpu=self.dice.choice((1, 2)), gates=gates, volume_claims=("c",)
        )
        match self.dice.randrange(8):
            case 0 | 1:
                self.queue.add(seen, self.now)
            case 2:
                self.queue.remove(seen.uid)
            case 3:
                self.queue.activate(seen.uid, self.now)
            case 4:
                self.queue.release(seen.uid, self.now)
            case 5:
                self.queue.note(self.dice.choice([GONE, ClusterEvent.NODE_LABELS]))
            case 6:
                self.queue.note(ClusterEvent.CLAIM_CHANGED, claim=self.dice.choice(["", "default/c"]))
            case 7 if self.in_flight:
                self.put_back(self.in_flight.pop())


@pytest.mark.parametrize("seed", range(20))
def test_what_can_be_popped_was_signalled(seed: int) -> None:
    """After a pop that returned None, without a signal the next pop returns None too, and not until the same time."""
    world = Waiting(Random(seed))
    world.queue.on_change = world.signal
    for _ in range(300):
        world.now += world.dice.choice([0.0, 0.0, 1.0, 20.0])
        world.pop_all()
        upcoming, world.signalled = world.queue.next_time(), False
        world.change()
        if not world.signalled:
            copy = deepcopy(world.queue)
            assert copy.pop(world.now) is None
            later = copy.next_time()
            assert (inf if later is None else later) >= min(
                inf if upcoming is None else upcoming, world.queue._next_flush
            )


def test_an_event_while_nobody_waits_for_events_is_no_signal() -> None:
    """The loop is not woken for an event that cannot help any pod."""
    queue, signals = queue_of("a"), list[str]()
    queue.on_change = lambda: signals.append("signal")
    queue.note(GONE)
    refuse_all(queue, 0.0)
    assert signals == []
    queue.note(GONE)
    assert signals == ["signal"]
