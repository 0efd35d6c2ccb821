"""Copies of copies, with values that are such tables themselves: each sees its own changes only."""

from copy import deepcopy
from random import Random

import pytest

from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite, SharedDict
from tests.support.thoroughness import examples

Nested = CopyOnWrite[str, CopyOnWrite[str, dict[str, int]]]
Plain = dict[str, dict[str, dict[str, int]]]


def plain(table: Nested) -> Plain:
    return {key: {inner: dict(value) for inner, value in row.by_key.items()} for key, row in table.by_key.items()}


@pytest.mark.parametrize("seed", range(examples(40)))
def test_each_sees_its_own_changes_only(seed: int) -> None:
    dice = Random(seed)
    family: list[tuple[Nested, Plain]] = [(CopyOnWrite(), {})]
    for step in range(200):
        table, expected = dice.choice(family)
        key, inner, name = (dice.choice("abc") for _ in range(3))
        match dice.randrange(5):
            case 0:
                family = [*family[-3:], (table.copy(), deepcopy(expected))]
            case 1 if key in expected:
                table.remove(key)
                del expected[key]
            case 2 if inner in expected.get(key, {}):
                table.to_change(key, CopyOnWrite).remove(inner)
                del expected[key][inner]
            case _:
                table.to_change(key, CopyOnWrite).to_change(inner, dict)[name] = step
                expected.setdefault(key, {}).setdefault(inner, {})[name] = step
        assert [plain(table) for table, _ in family] == [expected for _, expected in family]


@pytest.mark.parametrize("seed", range(examples(20)))
def test_dictionaries_that_share_their_parts(seed: int) -> None:
    dice = Random(seed)
    family: list[tuple[SharedDict[str, int], dict[str, int]]] = [(SharedDict(), {})]
    for step in range(3000):
        shared, expected = dice.choice(family)
        key = str(dice.randrange(2000))
        match dice.randrange(100):
            case 0:
                family = [*family[-3:], (shared.copy(), dict(expected))]
            case choice if choice < 30:
                assert shared.pop(key, None) == expected.pop(key, None)
            case _:
                shared[key] = expected[key] = step
    for shared, expected in family:
        assert {key: shared[key] for key in shared} == {key: shared.get(key) for key in expected} == expected
        assert len(shared) == len(expected)
