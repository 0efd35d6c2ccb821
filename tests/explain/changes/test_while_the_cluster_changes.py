"""A search may run beside the scheduler: whatever happens in a pause, each change is true when it is yielded."""

from collections.abc import Callable
from random import Random

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import Change, ChangeKind
from neuron_scheduler.explain.changes.refused_pod import RefusedPod
from neuron_scheduler.explain.changes.search import KINDS
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError, schedule_pod
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance
from tests.explain.changes.test_search_properties import read_taint, text_of
from tests.explain.changes.worlds import full_world, mixed_world
from tests.support import brute_force
from tests.support.brute_force import World
from tests.support.thoroughness import examples


def now(cluster: Cluster, world: World) -> World:
    """Return the world as the cluster has become."""
    rows = list(cluster.view.rows())
    return attrs.evolve(
        world,
        nodes=tuple(row.node for row in rows),
        bound=tuple(info.pod for row in rows for info in row.pod_infos.values()),
        kept=tuple((row.node.name, nomination) for row in rows for nomination in row.nominations),
    )


def something_happens(dice: Random, cluster: Cluster, other: World) -> None:
    """Change the cluster by one event: of a pod, or of a node."""
    rows = list(cluster.view.rows())
    match dice.randint(0, 5):
        case 0 if rows:
            uids = list(dice.choice(rows).pod_infos)
            if uids:
                cluster.remove_pod(dice.choice(uids))
        case 1 if other.bound:
            new = dice.choice(other.bound)
            cluster.put_pod(attrs.evolve(new, uid=f"{new.uid}-new", name=f"{new.name}-new"))
        case 2 if rows:
            node = dice.choice(rows).node
            cluster.put_node(attrs.evolve(node, unschedulable=not node.unschedulable))
        case 3 if rows:
            cluster.remove_node(dice.choice(rows).node.name)
        case 4 if other.nodes:
            cluster.put_node(dice.choice(other.nodes))
        case 5 if other.kept:
            cluster.nominate(*dice.choice(other.kept))


def lets_it_in(world: World, change: Change) -> bool:
    """Return whether the pod fits once the change is made."""
    match change.kind:
        case ChangeKind.COUNT:
            world = world.asking_for(change.counts[0])
        case ChangeKind.DEPARTURE:
            world = world.without_pods(brute_force.keys_of(change))
        case ChangeKind.UNCORDON:
            world = world.uncordoned(change.node_name)
        case ChangeKind.TOLERATION:
            world = world.tolerating(read_taint(text) for text in change.detail.split(", "))
        case ChangeKind.SELECTOR:
            named = change.detail.split("; ")
            dropped = [part for part in brute_force.droppable(world) if text_of(world, *part) in named]
            world = brute_force.dropping(world, dropped)
        case ChangeKind.INSTANCE_TYPE:
            world = brute_force.selecting(world, change.instance_type)
        case ChangeKind.NEW_NODE:
            return brute_force.joined(world, change.instance_type)
    return world.fits


@pytest.mark.parametrize("seed", range(examples(16)))
@pytest.mark.parametrize("some_world", [full_world, mixed_world])
def test_each_change_is_true_when_it_is_yielded(seed: int, some_world: Callable[[Random], World]) -> None:
    """Pods and nodes come and go at every pause."""
    dice = Random(seed)
    offered = 0
    for _ in range(40):
        world, other = some_world(dice), some_world(dice)
        cluster = world.cluster()
        refused = schedule_pod(cluster, world.pending, world.profile)
        if not isinstance(refused, FitError) or world.pending.refusal:
            continue
        question = RefusedPod(cluster, world.pending, world.profile, refused, DisruptionAllowance(()))
        for kind in KINDS:
            for item in kind(question):
                if item is None:
                    something_happens(dice, cluster, other)
                elif isinstance(item, Change) and not _is_beyond_the_oracle(world, item):
                    offered += 1
                    assert lets_it_in(now(cluster, world), item), item
    assert offered


def _is_beyond_the_oracle(world: World, change: Change) -> bool:
    """Return whether a type was replaced in terms, which is written down for node selectors only."""
    return change.kind is ChangeKind.INSTANCE_TYPE and world.pending.constraints.required_terms is not None
