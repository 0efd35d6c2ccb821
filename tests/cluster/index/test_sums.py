"""Sums of rows by domain are those that a recount finds, whatever has changed since."""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.pods import PodQuery
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import ULTRASERVER_4, ZONE_LABEL
from neuron_scheduler.model.resources import CPU
from neuron_scheduler.model.selectors import LabelSelector
from tests.support.builders import node, pod
from tests.support.thoroughness import examples

KEYS: Final = (ZONE_LABEL, ULTRASERVER_4)
ZEROS: Final = "0" * 16
ALL: Final = PodQuery((LabelSelector(),), frozenset({"default"}), terminating=True)


def free_cpus(row: NodeInfo) -> int:
    """Return how many cpus of a node are free."""
    return row.free(CPU) // 1000


def check(cluster: Cluster) -> None:
    """Compare each sum at each node with a recount."""
    rows = {cluster.view.slot(row.node.name): row for row in cluster.view.rows()}
    for key in KEYS:
        domains = {slot: row.node.labels.get(key, ZEROS) for slot, row in rows.items()}
        for slot, domain in domains.items():
            here = [free_cpus(row) for other, row in rows.items() if domains[other] == domain != ZEROS]
            assert slot is not None
            assert cluster.view.sums(free_cpus, key).value(slot) == sum(here)


def change(cluster: Cluster, dice: Random) -> None:
    """Change a node or a pod, or so many nodes that all get new slots."""
    name = f"n{dice.randrange(12)}"
    match dice.randrange(6):
        case 0 | 1:
            labels = {ZONE_LABEL: dice.choice(["x", "y", None]), ULTRASERVER_4: dice.choice(["u", "v", ZEROS, None])}
            present = {key: value for key, value in labels.items() if value is not None}
            cluster.put_node(node(name, labels=present, cpu=dice.choice([4_000, 9_000]), created=dice.randrange(9)))
        case 2:
            cluster.remove_node(name)
        case 3:
            cluster.put_pod(pod(f"p{dice.randrange(9)}", cpu=dice.choice([1_000, 3_000]), on=name))
        case 4:
            cluster.remove_pod(f"uid-p{dice.randrange(9)}")
        case _ if dice.random() < 0.1:
            for i in range(100):
                cluster.put_node(node(f"short-{i}", labels={ZONE_LABEL: "x"}))
                cluster.remove_node(f"short-{i}")


@pytest.mark.parametrize("seed", range(examples(40)))
def test_sums_are_those_of_a_recount(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes come, go and change their labels, pods too, and each fork goes its own way."""
    monkeypatch.setattr("neuron_scheduler.cluster.index.rollup.MANY", seed % 3)
    dice, clusters = Random(seed), [Cluster()]
    if seed % 4:
        clusters[0].view.column(free_cpus)  # changes of rows are logged only if some index of rows reads them
    for _ in range(150):
        cluster = dice.choice(clusters)
        change(cluster, dice)
        if dice.random() < 0.1:
            clusters = [*clusters[-2:], cluster.fork()]
        for each in clusters if dice.random() < 0.5 else ():
            check(each)


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        pytest.param(lambda view: view.sums(free_cpus, ZONE_LABEL), 15 * 192, id="sums of rows"),
        pytest.param(lambda view: view.totals(ALL, ZONE_LABEL), 15, id="totals of pods"),
    ],
)
def test_nodes_leave_in_any_one_pause(ask: Callable[[View], Any], expected: int) -> None:
    """A few or nearly all, while an index is prepared: the answer is right."""
    pause, ended = 0, False
    while not ended:
        cluster = Cluster()
        cluster.view.column(free_cpus)
        for i in range(330):
            cluster.put_node(node(f"n{i}", labels={ZONE_LABEL: "xy"[i % 2]}, created=i))
            cluster.put_pod(pod(f"p{i}", on=f"n{i}"))
        steps = cluster.view.prepare(ask)
        ended = any(next(steps, "end") == "end" for _ in range(pause))
        for i in range(300):
            cluster.remove_node(f"n{i}")
        assert not [*filter(None, steps)]
        assert {ask(cluster.view).value(cluster.view.slot(f"n{i}")) for i in range(300, 330)} == {expected}
        pause += 1
    assert pause > 5
