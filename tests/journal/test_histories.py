"""Random histories of the whole scheduler: what the journal says of them makes the same cluster and decisions."""

from random import Random

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.journal.changes import Change, make
from neuron_scheduler.journal.journal import Journal
from neuron_scheduler.journal.records import Decided, RecordedProfile
from neuron_scheduler.journal.replay import Replayed, replay
from tests.journal.memory import Memory
from tests.support.random_events import change, change_storage, pass_turns
from tests.support.simulated_server import PROFILE, World, running
from tests.support.thoroughness import examples

STEPS = 60


async def history(seed: int, *, restarts: bool = False) -> tuple[Memory, Cluster]:
    """Play a random history; return the journal, and the cluster at its end."""
    dice, memory = Random(seed), Memory()
    journal = Journal(output=memory, profiles=(RecordedProfile("my-scheduler", ("A",)),), wall_clock=lambda: 5.0)
    world = World(dice, cluster=journal.cluster)
    world.scheduler.listeners.append(journal.decided)
    for _ in range(10):
        change(dice, world)  # what was there before the journal began
    await journal._write_what_waits()
    async with running(world):
        for _ in range(STEPS):
            (change if dice.random() < 0.8 else change_storage)(dice, world)
            if dice.random() < 0.5:
                await pass_turns(dice.randint(0, 3))
            else:
                await world.settle()
            if restarts and dice.random() < 0.1:
                memory.full = True
            if dice.random() < 0.5:
                await journal._write_what_waits()
        await world.settle()
    await journal.finish()
    return memory, journal.cluster


def same_rows(one: Cluster, other: Cluster) -> None:
    """Compare all that is known of each node and its pods."""
    names = sorted(row.node.name for row in one.view.rows())
    assert names == sorted(row.node.name for row in other.view.rows())
    for name in names:
        mine, theirs = one.node(name), other.node(name)
        assert mine is not None
        assert theirs is not None
        assert mine == theirs
        assert {uid: p.cores for uid, p in mine.pod_infos.items()} == {u: p.cores for u, p in theirs.pod_infos.items()}


@pytest.mark.parametrize("seed", range(examples(40)))
@pytest.mark.parametrize("restarts", [False, True])
async def test_the_journal_decides_as_the_scheduler_did(seed: int, *, restarts: bool) -> None:
    """Each recorded decision is made again in the same way, from whichever file it is in."""
    memory, _ = await history(seed, restarts=restarts)
    for number in range(len(memory.files)):
        results = list(replay(memory.records(number), lambda _, name: attrs.evolve(PROFILE, scheduler_name=name)))
        assert [result for result in results if not isinstance(result, Replayed) or result.difference] == []
        assert len(results) == sum(isinstance(record, Decided) for record in memory.records(number))


@pytest.mark.parametrize("seed", range(examples(40)))
async def test_the_changes_make_the_same_cluster(seed: int) -> None:
    """A file begins with the whole cluster, and goes on with each change."""
    memory, cluster = await history(seed, restarts=True)
    for number in range(len(memory.files)):
        copy = Cluster()
        for record in memory.records(number):
            if isinstance(record, Change):
                make(record, copy)
        if number == len(memory.files) - 1:
            same_rows(cluster, copy)
