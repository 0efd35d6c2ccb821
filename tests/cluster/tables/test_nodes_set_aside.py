"""After any changes of nodes and pods, the set of nodes that are set aside agrees with the rows."""

from random import Random

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.cluster.tables import nodes
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.support.builders import node, pod

NAMES = "abcde"
TYPES = ("trn1.32xlarge", "trn1.32xlarge", "inf2.24xlarge")


def names_aside(cluster: Cluster) -> set[str]:
    """Return the names of the nodes in the set."""
    return {cluster.view.row(slot).node.name for slot in slots_of(cluster.view.set_aside)}


def names_by_row(cluster: Cluster) -> set[str]:
    """Return the names of the nodes that are set aside in their rows."""
    return {state.node.name for state in cluster.view.rows() if state.set_aside is not None}


def happens(dice: Random, cluster: Cluster, aside: set[str], types: dict[str, str]) -> None:
    """Make one random change to the cluster, and to what should be set aside in it."""
    name = dice.choice(NAMES)
    match dice.randint(0, 4):
        case 0:
            kind = dice.choice(TYPES)
            cluster.put_node(node(name, kind, created=dice.randint(0, 3)))
            if types.get(name) != kind:  # another machine
                aside.discard(name)
            types[name] = kind
        case 1:
            cluster.remove_node(name)
            aside.discard(name)
            types.pop(name, None)
        case 2:
            cores = dice.choice([None, CoreMask(0), CoreMask(1)])
            cluster.set_aside(name, cores)
            aside.discard(name)
            if name in types and cores is not None:
                aside.add(name)
        case 3:
            cluster.put_pod(pod(dice.choice("pqr"), on=name, devices=1, ids=(0,)))
        case _:
            cluster.remove_pod(f"uid-{dice.choice('pqr')}")


@pytest.mark.parametrize("part", range(4))
def test_the_set_follows_the_rows(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Nodes that are removed or changed, or get the slot of another one, and forks that keep the earlier state."""
    monkeypatch.setattr(nodes, "_MOST_HOLES", 0)
    for seed in range(part * 50, part * 50 + 50):
        dice, cluster = Random(seed), Cluster()
        aside: set[str] = set()
        types: dict[str, str] = {}
        for _ in range(40):
            happens(dice, cluster, aside, types)
            assert names_aside(cluster) == names_by_row(cluster) == aside, f"seed {seed}"
        fork = cluster.fork()
        for name in NAMES:
            cluster.set_aside(name, None)
        assert (names_aside(cluster), names_aside(fork)) == (set(), aside)
