"""
Which devices of a node the claims of a pod get.

    for each constraint: each of its values        (depth first, as long as enough devices are left for each request)
      for each request, the one with the least choice first: the devices whose loss costs other pods least
      where requests compete and that fails: any disjoint sets                            (augmenting paths, exact)

Of several answers the one counts that cuts the smallest free block, as for pods by count. Upstream's allocator takes
the first devices that fit (`structured/internal` in k8s.io/dynamic-resource-allocation).
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import islice
from operator import or_
from typing import Final

import attrs

from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.packing import MOST_REMEMBERED
from neuron_scheduler.neuron.topology import legal_sets, levels_of

ALL: Final = 0
"""As a count: all devices that match."""
MOST_OF_A_CLAIM: Final = 32
MOST_COMPARED: Final = 16
"""Combinations of values of which the best is taken: as many as there are groups of a machine."""
MOST_LOOKS: Final = 4_000
"""Devices of a search for which a place is looked for; after that the answer is "does not fit", which is safe."""

ENOUGH_LOOKS: Final = 500
"""After these, any answer will do."""


@attrs.frozen(cache_hash=True)
class DeviceDemand:
    """
    What one request may get.

    Attributes:
        matching: the devices that its selectors select.
        allowed: those of them that it tolerates, and whose fields are all served.
        count: how many it needs; `ALL` for all that match.
    """

    matching: int
    allowed: int
    count: int


@attrs.frozen
class Choice:
    """
    The devices of each request.

    Attributes:
        sets: by request.
        level: size of the largest free Neuron block that is cut, as `Placement.level`; 0 without Neuron.
    """

    sets: tuple[int, ...]
    level: int


Constraints = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""Of each constraint: the devices of each value, and the numbers of its requests."""


@memoise(maxsize=MOST_REMEMBERED)
def choose(
    machine: Machine, free: int, holds: tuple[int, ...], demands: tuple[DeviceDemand, ...], constraints: Constraints
) -> Choice | None:
    """
    Return the best devices for some requests within the free ones, or None if there are none.

    `machine` is what the first bits make up; `holds` has for each device the bits that are held with it.
    """
    free_now = sum(1 << bit for bit, held in enumerate(holds) if not held & ~free)
    whole = sum(1 << bit for bit, held in enumerate(holds) if held.bit_count() > 1)
    several = (free_now & ~(whole | holds[bit]) | 1 << bit for bit in bits_of(whole & free_now))  # excluding its parts
    choosers = (_Chooser(machine, free, available, demands) for available in (free_now & ~whole, *several))
    return _least(chooser.best(constraints) for chooser in choosers)


def _least(choices: Iterable[Choice | None]) -> Choice | None:
    return min((each for each in choices if each is not None), key=lambda each: each.level, default=None)


@attrs.define(eq=False)
class _Chooser:
    machine: Machine
    free: int
    available: int
    demands: tuple[DeviceDemand, ...]
    _looks: int = 0

    def best(self, constraints: Constraints) -> Choice | None:
        masks = [demand.allowed for demand in self.demands]
        for values, requests in constraints:
            if len(requests) == 1 and self.demands[requests[0]].count == 1:  # it has the value of itself
                masks[requests[0]] &= reduce(or_, values, 0)
        others = list[tuple[tuple[int, ...], tuple[int, ...]]]()
        for values, requests in constraints:
            if len(requests) != 1 or self.demands[requests[0]].count != 1:
                possible = [value for value in values if self._suffices(masks, value, requests)]
                others.append((tuple(possible), requests))
        others.sort(key=lambda each: len(each[0]))  # what is impossible ends the search at once
        found: Choice | None = None
        for narrowed in islice(self._narrow(tuple(others), tuple(masks)), MOST_COMPARED):
            found = _least((found, self._pick(narrowed)))
            if found is not None and self._looks > ENOUGH_LOOKS:
                break
        return found

    def _narrow(self, constraints: Constraints, masks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield what each request may get for each combination of the constraints' values that leaves enough."""
        if not self._has_enough(masks):
            return
        if not constraints:
            yield masks
            return
        (values, requests), *rest = constraints
        for value in values:
            narrowed = _restrict(masks, value, requests)
            if self._disjoint(narrowed) is not None:  # else no values of the other constraints help
                yield from self._narrow(tuple(rest), narrowed)

    def _suffices(self, masks: Sequence[int], value: int, requests: Sequence[int]) -> bool:
        """Return whether devices with a value are enough for these requests, if there were no others."""
        alone = [mask & value if number in requests else 0 for number, mask in enumerate(masks)]
        return self._disjoint(alone, requests) is not None

    def _has_enough(self, masks: Sequence[int]) -> bool:
        return all(
            demand.matching and not demand.matching & ~(mask & self.available)
            if demand.count == ALL
            else (mask & self.available).bit_count() >= demand.count
            for demand, mask in zip(self.demands, masks, strict=True)
        )

    def _pick(self, masks: Sequence[int]) -> Choice | None:
        """Return sets within these masks: the best for each request in turn, else any that are disjoint."""
        counts = [demand.count for demand in self.demands]
        order = sorted(
            range(len(masks)), key=lambda n: counts[n] and (masks[n] & self.available).bit_count() - counts[n]
        )
        sets = self._in_turn(order, masks) or self._disjoint(masks)
        if sets is None:
            return None
        levels = self._levels()
        taken = [levels[bit] for chosen in sets for bit in bits_of(chosen) if bit < len(levels)]
        return Choice(tuple(sets), max(taken, default=0))

    def _in_turn(self, order: Sequence[int], masks: Sequence[int]) -> list[int] | None:
        left, sets = self.available, [0] * len(masks)
        for number in order:
            demand, self._looks = self.demands[number], self._looks + 10  # it takes as long as so many looks
            if demand.count == ALL:
                chosen = demand.matching if not demand.matching & ~left else 0
            else:
                chosen = self._cheapest(masks[number] & left, demand.count)
            if not chosen:
                return None
            sets[number], left = chosen, left & ~chosen
        return sets

    def _cheapest(self, allowed: int, count: int) -> int:
        """Return so many of the allowed devices: a legal block of the least level, else those of the least levels."""
        if allowed.bit_count() < count:
            return 0
        levels = self._levels()
        neuron = allowed & (1 << len(levels)) - 1
        if neuron.bit_count() >= count:
            request = NeuronRequest(Unit.DEVICE, (count,), count)
            legal = [int(each) for each in legal_sets(self.machine, request) or () if not int(each) & ~neuron]
            if legal:
                return min(legal, key=lambda each: (max(levels[bit] for bit in bits_of(each)), each))
        by_level = sorted(bits_of(allowed), key=lambda bit: (levels[bit] if bit < len(levels) else 0, bit))
        return sum(1 << bit for bit in by_level[:count])

    def _levels(self) -> tuple[int, ...]:
        return levels_of(self.machine, CoreMask(self.free & int(self.machine.all_cores)))

    def _disjoint(self, masks: Sequence[int], requests: Sequence[int] | None = None) -> list[int] | None:
        """Return any disjoint sets of some requests, or of all; each place finds a device along an augmenting path."""
        among = range(len(masks)) if requests is None else requests
        counts = [demand.count or demand.matching.bit_count() for demand in self.demands]
        places = [number for number in among for _ in range(counts[number])]
        taken = dict[int, int]()  # the place, by device
        for place in range(len(places)):
            if not self._augment(place, places, masks, taken, set()):
                return None
        sets = [0] * len(masks)
        for bit, place in taken.items():
            sets[places[place]] |= 1 << bit
        return sets

    def _augment(
        self, place: int, places: Sequence[int], masks: Sequence[int], taken: dict[int, int], seen: set[int]
    ) -> bool:
        self._looks += 1
        if self._looks > MOST_LOOKS:
            return False
        for bit in bits_of(masks[places[place]] & self.available):
            if bit not in seen:
                seen.add(bit)
                if bit not in taken or self._augment(taken[bit], places, masks, taken, seen):
                    taken[bit] = place
                    return True
        return False


def _restrict(masks: Sequence[int], value: int, requests: Sequence[int]) -> tuple[int, ...]:
    """Return what each request may get if these get devices with one value of an attribute."""
    return tuple([mask & value if number in requests else mask for number, mask in enumerate(masks)])


def bits_of(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits of a mask, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
