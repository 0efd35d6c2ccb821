"""Indexes under an overlay: correct after any changes, at the cost of the rows that the overlay changes."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index import indexes
from neuron_scheduler.cluster.index.nodeset import Slot, by_slot
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.cluster.view import Overlay, View, _OverlaidIndex
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.filters import WithNominated, nominated_overlay
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import schedule_pod
from neuron_scheduler.scheduling.preemption.search import WithoutLowerPriority
from tests.support.builders import node, pod
from tests.support.cluster_invariants import NUMBERS_OF_ROWS, OF_ROWS
from tests.support.harness import cluster_of
from tests.support.thoroughness import examples

PROFILE = default_profile("p")
LENSES: tuple[Overlay, ...] = (WithNominated(1), WithNominated(3), WithoutLowerPriority(1), WithoutLowerPriority(4))


@pytest.fixture
def evaluated(monkeypatch: pytest.MonkeyPatch) -> list[NodeInfo]:
    """Return the rows that were read under an overlay, one entry for each definition."""
    seen: list[NodeInfo] = []
    look = _OverlaidIndex.__call__

    def watched(self: _OverlaidIndex, node_info: NodeInfo) -> Any:
        seen.append(node_info)
        return look(self, node_info)

    monkeypatch.setattr(_OverlaidIndex, "__call__", watched)
    return seen


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the limits so low that a short test reaches them."""
    for name, bound in (
        ("_FEWEST_LOGGED", 8),
        ("_MOST_INDEXES", 12),
        ("_MOST_DERIVED", 12),
        ("_AT_ONCE", 2),
        ("_PATIENCE", 2),
    ):
        monkeypatch.setattr(indexes, name, bound)


def ask(view: View, definition: Callable[[NodeInfo], Any]) -> dict[Slot, Any]:
    """Return what an index says of every row."""
    if definition in NUMBERS_OF_ROWS:
        column = view.column(definition)
        return {slot: column.value(slot) for slot in map(Slot, range(view.node_count))}
    postings = view.postings(definition)
    rows = {
        slot: {v for v in postings.values if postings.get(v) >> slot & 1} for slot in map(Slot, range(view.node_count))
    }
    assert {slot for slot, values in rows.items() if values} == {s for s in rows if postings.keyed >> s & 1}
    return rows


def check(cluster: Cluster, overlay: Overlay, definition: Callable[[NodeInfo], Any]) -> None:
    """Compare an index under an overlay with its definition, row by row."""
    for view, row in ((cluster.view.with_overlay(overlay), overlay), (cluster.view, lambda node_info: node_info)):
        want = [definition(row(cluster.view.row(Slot(slot)))) for slot in range(view.node_count)]
        assert ask(view, definition) == dict(by_slot(want if definition in NUMBERS_OF_ROWS else map(set, want)))


def change(dice: Random, cluster: Cluster, number: int) -> None:
    """Add or remove a pod, or set or clear a nomination."""
    name, uid = f"n{dice.randrange(cluster.view.node_count)}", f"uid-p{dice.randrange(number + 1)}"
    some = pod(f"p{number}", devices=dice.choice((0, 1, 4)), cpu=100, priority=dice.randint(0, 5))
    match dice.randrange(4):
        case 0:
            cluster.put_pod(attrs.evolve(some, node_name=name))
        case 1:
            cluster.remove_pod(uid)
        case 2:
            cluster.nominate(name, Nomination(some, cores=CoreMask(dice.getrandbits(8) if some.neuron else 0)))
        case _:
            cluster.clear_nomination(uid)


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("seed", range(examples(30)))
def test_an_index_under_an_overlay_is_correct_when_it_is_used(seed: int) -> None:
    """Derived from another one or built, prepared in steps, caught up or dropped: it agrees with the rows."""
    dice = Random(seed)
    cluster = cluster_of([node(f"n{i}", "trn1.32xlarge", created=i) for i in range(dice.choice((3, 12)))])
    preparations: list[Iterator[None]] = []
    for number in range(150):
        change(dice, cluster, number)
        overlay, definition = dice.choice(LENSES), dice.choice((*OF_ROWS, *NUMBERS_OF_ROWS))
        match dice.randrange(4):
            case 0:
                check(cluster, overlay, definition)
            case 1:
                view = cluster.view.with_overlay(overlay)
                preparations.append(view.prepare(lambda view, definition=definition: ask(view, definition)))  # type: ignore[misc]  # mypy cannot type the default
            case _:
                for preparation in preparations:
                    next(preparation, None)
    for overlay in LENSES:
        for definition in (*OF_ROWS, *NUMBERS_OF_ROWS):
            check(cluster, overlay, definition)


def some_nominations(nodes: int, nominations: int, priority: int = 9) -> Cluster:
    """Return a fleet of which some nodes are nominated for pods of a priority."""
    cluster = cluster_of([node(f"n{i}", "trn1.32xlarge", created=i) for i in range(nodes)])
    for number in range(nominations):
        cluster.nominate(
            f"n{number}", Nomination(pod(f"first{number}", devices=4, priority=priority), cores=CoreMask(0xFF))
        )
    return cluster


@pytest.mark.parametrize("nominations", [1, 30])
def test_a_decision_beside_nominations_reads_only_their_rows(nominations: int, evaluated: list[NodeInfo]) -> None:
    """It reads as many rows through the overlay among 1,000 nodes as among 100, whatever the pod asks for."""
    reads: list[list[int]] = []
    for nodes in (100, 1000):
        cluster = some_nominations(nodes, nominations)
        schedule_pod(cluster, pod("warm-up", devices=1, cpu=100), PROFILE)
        reads.append([])
        for priority, devices in ((0, 4), (1, 8), (2, 16), (3, (1, 1)), (4, (4, 4))):
            evaluated.clear()
            schedule_pod(cluster, pod("p", devices=devices, cpu=100, priority=priority), PROFILE)
            reads[-1].append(len(evaluated))
    assert reads[0] == reads[1]
    assert min(reads[0]) > 0


def test_pods_of_all_priorities_below_the_nominated_share_an_overlay() -> None:
    """A priority that no pod has had before costs no index."""
    cluster = some_nominations(50, 1)
    table, derived = cluster._table.of_rows, set[int]()
    for priority in range(9):
        schedule_pod(cluster, pod("p", devices=4, cpu=100, priority=priority), PROFILE)
        derived.add(len(table._derived))
    assert len(derived) == 1
    assert nominated_overlay(cluster, 10) is None


def test_derived_indexes_take_no_room_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of a few rows, however many, do not evict indexes of all rows."""
    monkeypatch.setattr(indexes, "_MOST_INDEXES", 40)
    monkeypatch.setattr(indexes, "_MOST_DERIVED", 4)
    cluster = some_nominations(5, 1)
    table = cluster._table.of_rows
    for devices in (1, 2, 4, 8, 16):
        schedule_pod(cluster, pod("p", devices=devices, cpu=100), PROFILE)
        assert len(table._derived) <= 4
    assert table.dropped == 0
    assert 4 < len(table._by_definition) < 40


def test_an_unused_derived_index_is_dropped() -> None:
    """It does not keep the log from being cut."""
    cluster = some_nominations(3, 1)
    schedule_pod(cluster, pod("p", devices=1, cpu=100), PROFILE)
    table = cluster._table.of_rows
    assert table._derived
    cluster.clear_nomination("uid-first0")
    for number in range(2000):
        cluster.put_pod(pod(f"p{number}", on="n0", cpu=1))
    assert not table._derived
    assert len(table.log._changes) <= indexes._FEWEST_LOGGED


def test_where_much_has_changed_a_derived_index_is_derived_again(evaluated: list[NodeInfo]) -> None:
    """Reading the changes of all rows costs more than computing the few rows that the overlay changes."""
    cluster = some_nominations(1000, 1)
    view = cluster.view.with_overlay(WithNominated(9))
    definition = NUMBERS_OF_ROWS[0]
    for number in range(500):
        if number == 100:
            ask(view, definition)
            evaluated.clear()
        cluster.put_pod(pod(f"p{number}", on=f"n{number + 1}", cpu=100))
    check(cluster, WithNominated(9), definition)
    assert len(evaluated) <= 4 * indexes._PATIENCE  # while it followed, and once more


def test_where_little_has_changed_a_preparation_reads_the_changes(evaluated: list[NodeInfo]) -> None:
    """A search for a group removes the pods of another one, and asks again: not about all rows."""
    cluster = some_nominations(1000, 900)
    view = cluster.view.with_overlay(WithNominated(9))

    def prepare() -> None:
        for _ in view.prepare(lambda view: ask(view, NUMBERS_OF_ROWS[0])):
            pass

    prepare()
    for number in range(200):
        cluster.put_pod(pod(f"p{number}", on=f"n{number}", cpu=100))
    evaluated.clear()
    prepare()
    assert 200 <= len(evaluated) <= 400
    check(cluster, WithNominated(9), NUMBERS_OF_ROWS[0])
