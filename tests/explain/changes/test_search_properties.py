"""
Every change that is offered lets the pod in.

The changes are applied to the objects, and a cluster is built from them (`support.brute_force`), which also tries all
changes: where one of a kind exists, the search offers one.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from neuron_scheduler.explain.answers import ChangeKind, SuggestedChange
from neuron_scheduler.explain.changes.search import NONE_ALONE, changes
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.steps import run
from tests.explain.changes.worlds import crowded_world, full_world, mixed_world
from tests.support.brute_force import World, lets_it_in, possible
from tests.support.thoroughness import examples


def answer(world: World) -> list[SuggestedChange] | None:
    """Return the changes; None if the pod fits as it is."""
    cluster = world.cluster()
    refused = schedule_pod(cluster, world.pending, world.profile)
    if not isinstance(refused, FitError):
        return None
    cluster.clear_nomination(world.pending.uid)
    found, notes = run(changes(cluster, world.pending, world.profile, refused=refused))
    assert (NONE_ALONE in notes) == (not found and not world.pending.refusal)
    return list(found)


def beyond_the_oracle(world: World, change: SuggestedChange) -> bool:
    """Return whether a type was replaced in terms, which is written down for node selectors only."""
    return change.kind is ChangeKind.INSTANCE_TYPE and world.pending.constraints.required_terms is not None


@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.parametrize("some_world", [full_world, crowded_world, mixed_world])
def test_each_change_lets_the_pod_in(seed: int, some_world: Callable[[Random], World]) -> None:
    """There is one of each kind at most, in the order of the kinds, and no kind misses what is possible."""
    dice = Random(seed)
    offered: Counter[ChangeKind] = Counter()
    refused = 0
    while refused < 30:
        world = some_world(dice)
        found = answer(world)
        if found is None:
            continue
        refused += 1
        kinds = [change.kind for change in found]
        assert kinds == [kind for kind in ChangeKind if kind in kinds]
        assert all(lets_it_in(world, change) for change in found if not beyond_the_oracle(world, change))
        if not world.pending.constraints.spread and not world.pending.refusal:
            assert {*possible(world)} <= {*kinds}
        offered.update(kinds)
    assert offered.total() > 5  # for 30 pods; nothing helps many of them
