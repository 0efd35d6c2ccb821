"""The choice of devices beside a brute force: it says yes exactly where there is a way, and what it gives is legal."""

from collections.abc import Sequence
from itertools import combinations, count
from random import Random

import pytest

from neuron_scheduler.neuron.catalog import Machine, Shape
from neuron_scheduler.neuron.claims.choice import (
    ALL,
    MOST_LOOKS,
    Choice,
    Constraints,
    DeviceDemand,
    _Chooser,
    bits_of,
    choose,
)
from tests.support.thoroughness import examples

SIZE = 10
TORUS = Machine("trn2.48xlarge", Shape.TORUS, 16, 1)
FLAT = Machine("", Shape.FLAT, SIZE, 1)


def mask(*bits: int) -> int:
    return sum(1 << bit for bit in bits)


Case = tuple[int, tuple[int, ...], tuple[DeviceDemand, ...], Constraints]


def some_case(dice: Random) -> Case:
    """Return free devices, what each holds (the last one perhaps all), demands and constraints."""
    free = dice.getrandbits(SIZE) | dice.getrandbits(SIZE)
    holds = [1 << bit for bit in range(SIZE)]
    if dice.random() < 0.3:
        holds[-1] |= mask(*range(4))
    demands = []
    for _ in range(dice.randint(1, 3)):
        matching = dice.getrandbits(SIZE) | dice.getrandbits(SIZE)
        allowed = matching & ~(1 << dice.randrange(SIZE)) if dice.random() < 0.3 else matching
        demands.append(DeviceDemand(matching, allowed, ALL if dice.random() < 0.15 else dice.randint(1, 3)))
    constraints = []
    for _ in range(dice.randint(0, 2)):
        values = [0, 0, 0]
        for bit in range(SIZE):
            values[dice.randrange(3)] |= 1 << bit if dice.random() < 0.9 else 0
        numbers = [number for number in range(len(demands)) if dice.random() < 0.7]
        constraints.append((tuple(values), tuple(numbers)))
    return free, tuple(holds), tuple(demands), tuple(constraints)


def is_legal(case: Case, sets: Sequence[int]) -> bool:
    """Return whether sets are an answer, as the API says it."""
    free, holds, demands, constraints = case
    held = [holds[bit] for chosen in sets for bit in bits_of(chosen)]
    union = 0
    for each in held:
        if each & union or each & ~free:
            return False
        union |= each
    for demand, chosen in zip(demands, sets, strict=True):
        count = demand.matching.bit_count() if demand.count == ALL else demand.count
        if chosen & ~demand.allowed or chosen.bit_count() != count or not count:
            return False
        if demand.count == ALL and chosen != demand.matching:
            return False
    for values, numbers in constraints:
        together = 0
        for number in numbers:
            together |= sets[number]
        if together and not any(not together & ~value for value in values):
            return False
    return True


def brute_force(case: Case) -> bool:
    """Return whether there is an answer: try all sets."""
    free, holds, demands, _ = case

    def go_on(sets: tuple[int, ...]) -> bool:
        if len(sets) == len(demands):
            return is_legal(case, sets)
        demand = demands[len(sets)]
        if demand.count == ALL:
            return go_on((*sets, demand.matching))
        bits = [bit for bit in bits_of(demand.allowed) if not holds[bit] & ~free]
        return any(go_on((*sets, mask(*some))) for some in combinations(bits, demand.count))

    return go_on(())


@pytest.mark.parametrize("part", range(examples(8)))
def test_it_says_yes_exactly_where_there_is_a_way(part: int) -> None:
    """And what it gives is disjoint, free, allowed and of one value for each constraint."""
    found = 0
    for seed in range(part * 250, part * 250 + 250):
        case = some_case(Random(seed))
        choice = choose(FLAT, *case)
        assert (choice is not None) == brute_force(case), seed
        if choice is not None:
            found += 1
            assert is_legal(case, choice.sets), seed
    assert 25 < found < 225


def test_a_search_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of many requests are to be of one group each; without the limit, it looks for 100,000 places."""
    looks, dice, look = count(), Random(3), _Chooser._augment
    monkeypatch.setattr(_Chooser, "_augment", lambda *of: (next(looks), look(*of))[1])
    demands = tuple(DeviceDemand(mask(*range(16)), mask(*range(16)), 1) for _ in range(15))
    groups = tuple(mask(first, first + 1) for first in range(0, 16, 2))
    constraints = tuple((groups, tuple(dice.sample(range(15), 2))) for _ in range(8))
    choose(TORUS, mask(*range(16)), tuple(1 << bit for bit in range(16)), demands, constraints)
    assert 500 < next(looks) < 2 * MOST_LOOKS


def torus(free: int, count: int, group: int = 1) -> Choice | None:
    """Choose devices of one torus; all in one group of so many."""
    groups = tuple(mask(*range(first, first + group)) for first in range(0, 16, group))
    demand = DeviceDemand(mask(*range(16)), mask(*range(16)), count)
    constraints = ((groups, (0,)),) if group > 1 else ()
    return choose(TORUS, free, tuple(1 << bit for bit in range(16)), (demand,), constraints)


@pytest.mark.parametrize(
    ("free", "count", "group", "want"),
    [
        pytest.param(mask(*range(16)), 4, 4, mask(*range(4)), id="a row of an empty machine"),
        pytest.param(mask(*range(5, 16)), 4, 4, mask(8, 9, 10, 11), id="a whole row, and not the broken one"),
        pytest.param(mask(*range(1, 16)), 1, 1, mask(1), id="one out of the broken row"),
        pytest.param(mask(2, *range(4, 16)), 2, 4, mask(4, 5), id="two of a group that has two"),
        pytest.param(mask(*range(3, 16)), 8, 8, mask(*range(8, 16)), id="the half that is whole"),
        pytest.param(mask(*range(1, 16)), 16, 1, None, id="one is missing"),
    ],
)
def test_what_is_chosen_of_a_torus(free: int, count: int, group: int, want: int | None) -> None:
    """The smallest free block that suffices is cut."""
    choice = torus(free, count, group)
    assert (None if choice is None else choice.sets) == (None if want is None else (want,))
