"""
Every change that is offered lets the pod in, and no smaller one of its kind does; of pods that end, none can stay.

The changes are applied to the objects, and a cluster is built from them (`support.brute_force`), which also tries every
change of each kind: where one exists, the search offers one, unless a note says that it was cut off.
"""

from collections.abc import Callable
from random import Random

import pytest

from neuron_scheduler.explain.answers import Change, ChangeKind
from neuron_scheduler.explain.changes.search import NONE_ALONE, changes
from neuron_scheduler.model.selectors import Effect, Requirement, Taint
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.steps import run
from tests.explain.changes.worlds import crowded_world, full_world, mixed_world
from tests.support import brute_force
from tests.support.brute_force import World
from tests.support.thoroughness import examples


def answer(world: World) -> tuple[dict[ChangeKind, list[Change]], tuple[str, ...]] | None:
    """Return the changes by kind, and the notes; None if the pod fits as it is."""
    cluster = world.cluster()
    refused = schedule_pod(cluster, world.pending, world.profile)
    if not isinstance(refused, FitError):
        return None
    found = run(changes(cluster, world.pending, world.profile, refused=refused))
    assert found is not None
    by_kind: dict[ChangeKind, list[Change]] = {kind: [] for kind in ChangeKind}
    for change in found[0]:
        by_kind[change.kind].append(change)
    assert [change.kind for change in found[0]] == [kind for kind in ChangeKind for _ in by_kind[kind]]
    assert (NONE_ALONE in found[1]) == (not found[0] and not world.pending.refusal)
    return by_kind, found[1]


def check_counts(world: World, found: list[Change]) -> None:
    """The nearest count below and above that fits is offered."""
    assert [change.counts[0] for change in found] == brute_force.nearest_counts(world)


def check_departures(world: World, found: list[Change]) -> None:
    """Their node takes the pod when they are gone, and none of them can stay."""
    assert len(found) >= brute_force.departures_help(world)
    for change in found:
        keys = brute_force.keys_of(change)
        assert world.without_pods(keys).takes(change.node_name)
        assert not any(world.without_pods({*keys} - {key}).takes(change.node_name) for key in keys)


def check_cordons(world: World, found: list[Change]) -> None:
    """A node that takes the pod without its cordon is offered."""
    cordons = brute_force.cordons(world)
    assert len(found) == bool(cordons)
    for change in found:
        assert change.node_name in cordons
        assert change.command == f"kubectl uncordon {change.node_name}"
        assert world.uncordoned(change.node_name).fits


def check_tolerations(world: World, found: list[Change]) -> None:
    """The taints are as few as can be."""
    fewest = brute_force.fewest_taints(world)
    assert len(found) == (fewest is not None)
    for change in found:
        taints = [read_taint(text) for text in change.detail.split(", ")]
        assert len(taints) == fewest
        assert world.tolerating(taints).fits


def check_selectors(world: World, found: list[Change]) -> None:
    """What is dropped is as little as can be."""
    fewest = brute_force.fewest_dropped(world)
    assert bool(found) == (fewest is not None)
    for change in found:
        named = change.detail.split("; ")
        dropped = [part for part in brute_force.droppable(world) if text_of(world, *part) in named]
        assert len(dropped) == len(named) == fewest
        assert brute_force.dropping(world, dropped).fits


def check_types(world: World, found: list[Change]) -> None:
    """The smallest type that takes the pod is offered."""
    if world.pending.constraints.required_terms is None:
        types = brute_force.other_types(world)
        assert len(found) == bool(types)
        assert all(change.instance_type == types[0][1] for change in found)
        assert all(brute_force.selecting(world, change.instance_type).fits for change in found)


def check_new_nodes(world: World, found: list[Change]) -> None:
    """The smallest type is offered of which a new node takes the pod."""
    smallest = brute_force.new_type(world)
    assert [change.instance_type for change in found] == ([] if smallest is None else [smallest])


CHECKS: dict[ChangeKind, Callable[[World, list[Change]], None]] = {
    ChangeKind.COUNT: check_counts,
    ChangeKind.DEPARTURE: check_departures,
    ChangeKind.UNCORDON: check_cordons,
    ChangeKind.TOLERATION: check_tolerations,
    ChangeKind.SELECTOR: check_selectors,
    ChangeKind.INSTANCE_TYPE: check_types,
    ChangeKind.NEW_NODE: check_new_nodes,
}
CUT_OFF = {
    ChangeKind.COUNT: ("other counts",),
    ChangeKind.DEPARTURE: ("search for pods whose end would do was cut off",),
}
"""Words of the notes with which a kind may miss a change; the worlds are too small for the other kinds' limits."""


def read_taint(text: str) -> Taint:
    """Return the taint of `key=value:effect`."""
    name, _, effect = text.rpartition(":")
    key, _, value = name.partition("=")
    return Taint(key, Effect(effect), value)


def text_of(world: World, key: str, requirement: Requirement | None) -> str:
    """Return how a part that is dropped is described."""
    if key:
        return f"{key}={world.pending.constraints.node_selector[key]}"
    if requirement is None:
        return "its required node affinity"
    values = f" ({', '.join(requirement.values)})" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


@pytest.mark.parametrize("seed", range(examples(8)))
@pytest.mark.parametrize("some_world", [full_world, crowded_world, mixed_world])
def test_each_change_is_the_smallest_that_lets_the_pod_in(seed: int, some_world: Callable[[Random], World]) -> None:
    """Every kind agrees with the change that is found by trying all of them."""
    dice = Random(seed)
    offered = dict.fromkeys(ChangeKind, 0)
    refused = 0
    while refused < 20:
        world = some_world(dice)
        found = answer(world)
        if found is None:
            continue
        refused += 1
        if world.pending.refusal:
            assert not any(found[0].values())
            continue
        for kind, check in CHECKS.items():
            offered[kind] += bool(found[0][kind])
            if not any(words in note for note in found[1] for words in CUT_OFF.get(kind, ())):
                check(world, found[0][kind])
    assert sum(offered.values()) > 5  # for 20 pods; nothing helps many of them
