"""Which nodes a pod prefers, so that UltraServers stay whole."""

from random import Random

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, slots_of
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import ULTRASERVER_2, ULTRASERVER_4, Node
from neuron_scheduler.scheduling.plugins.intact_ultra_servers import prefer, whole_free
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

OUTSIDE, BROKEN_PAIR, BROKEN_FOUR, INTACT = range(4)
ZEROS = "0" * 16


def ultraserver(four: str) -> list[Node]:
    """Return the nodes of an UltraServer."""
    ids = [{ULTRASERVER_4: four, ULTRASERVER_2: f"{four}{place // 2}"} for place in range(4)]
    return [node(f"{four}{place}", "trn2.48xlarge", labels=labels) for place, labels in enumerate(ids)]


def some_cluster(dice: Random) -> Cluster:
    """Return a few UltraServers, some nodes of which are missing, in use or cordoned, and nodes of none."""
    nodes = [each for four in "abc" for each in ultraserver(four)]
    nodes += [node(f"z{i}", "trn2.48xlarge", labels={ULTRASERVER_4: ZEROS, ULTRASERVER_2: ZEROS}) for i in range(2)]
    nodes += [node("y", "trn1.32xlarge"), node("x")]
    cluster, often = Cluster(), dice.choice([0.05, 0.3])
    for created, each in enumerate(dice.sample(nodes, dice.choice([6, 12, len(nodes)]))):
        labels = {key: value for key, value in each.labels.items() if key != ULTRASERVER_2 or dice.random() < 0.9}
        cordoned, fault = dice.random() < 0.1, "NeuronHealth" if dice.random() < 0.05 else ""
        changed = attrs.evolve(each, labels=labels, unschedulable=cordoned, neuron_fault=fault)
        cluster.put_node(attrs.evolve(changed, created=float(created)))
        if dice.random() < often:
            count, known = dice.choice([1, 16]), dice.random() < 0.7
            cluster.put_pod(pod(f"on-{each.name}", devices=count, ids=range(count) if known else None, on=each.name))
    return cluster


def is_free(row: NodeInfo) -> bool:
    """Return whether a pod can take a whole machine with all of its devices."""
    held = any(pod_info.cores != 0 for pod_info in row.pod_infos.values())
    return row.machine is not None and not (held or row.node.unschedulable or row.node.neuron_fault)


def class_of(row: NodeInfo, rows: list[NodeInfo]) -> int:
    """Return what a node belongs to, by looking at all others."""
    free = {
        key: sum(is_free(each) for each in rows if each.node.labels.get(key) == value)
        for key, value in row.node.labels.items()
        if key in (ULTRASERVER_2, ULTRASERVER_4) and value != ZEROS
    }
    if not free:
        return OUTSIDE
    if free.get(ULTRASERVER_2, 2) < 2:
        return BROKEN_PAIR
    return BROKEN_FOUR if free.get(ULTRASERVER_4, 4) < 4 else INTACT


@pytest.mark.parametrize("part", range(examples(8)))
def test_the_first_class_that_has_any_nodes(part: int) -> None:
    """Of any nodes, those outside of UltraServers, else of broken pairs, else of broken fours, else all."""
    seen = set[int]()
    for seed in range(part * 200, part * 200 + 200):
        dice = Random(seed)
        cluster = some_cluster(dice)
        among = NodeSet(dice.getrandbits(20) & dice.getrandbits(20)) & cluster.view.live
        classes = {s: class_of(cluster.view.row(s), list(cluster.view.rows())) for s in slots_of(among)}
        first = min(classes.values(), default=OUTSIDE)
        preferred = set(slots_of(prefer(cluster.view, pod(devices=16), among)))
        assert preferred == {slot for slot, found in classes.items() if found == first}
        seen.add(first)
    assert len(seen) == 4, seen


def test_all_its_indexes_are_warmed_up() -> None:
    """Also those that it needs only where no node is outside of UltraServers."""
    cluster = cluster_of([*ultraserver("a"), node("x", "trn2.48xlarge")])

    def ask(view: View) -> None:
        view.column(whole_free)  # changes of rows are logged only if some index of rows reads them
        prefer(view, pod(devices=16), view.live)

    assert [*cluster.view.prepare(ask)]
    cluster.remove_node("x")
    assert not cluster.view.index_requests(ask).lacking
