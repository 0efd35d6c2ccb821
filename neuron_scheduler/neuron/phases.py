"""
Which container gets which run or block at each phase of a pod's start.

Ordinary init containers run one after the other, each beside the sidecars that started before it, and reuse ids of the
pod's other containers. A container's set is disjoint from those of the containers that run beside it; all sets together
take no more ids than the phase that needs most. An init container that fits into the set of a later container needs no
set of its own. For any other one a *carrier* is placed: a set that it shares with some later containers.

Blocks nest, and containers that share a run fit into it in the order of the spec. So trying every way of sharing finds
a division if there is one; the search is bounded.
"""

import itertools
from collections.abc import Iterator, Sequence

import attrs

from neuron_scheduler.model.neuron_request import widest_phase
from neuron_scheduler.neuron.packing import FreeIds, best_start, fit, ones

MOST_SUBSETS_OF = 10
"""Up to this number of containers, every way of sharing ids with a larger init container is tried."""
MOST_DIVISIONS = 1_000
"""Ways of sharing that are tried for one pod on one machine."""

Inits = Sequence[tuple[int, int]]
"""For each init container its count, and how many of the other containers (the first ones) run beside it."""
Starts = tuple[int, ...]


def arrange(free_ids: FreeIds, counts: tuple[int, ...], inits: Inits) -> tuple[Starts, Starts] | None:
    """
    Return the lowest id of the set of each container, and of each init container; None if they do not fit.

    In one run or block if possible, else ascending in the order given if possible. Each count must be legal.
    """
    total = sum(widest_phase(counts, inits))
    if total <= free_ids.cell or counts == (total,):
        start = best_start(free_ids, free_ids.free, total)
        if start is not None:
            return _place_side_by_side(start, counts, inits)
        if counts == (total,):
            return None
    apart = _inits_to_carry(counts, inits)
    division = _Search().divide(free_ids, counts, [inits[i] for i in apart], room=total)
    if division is None:
        return None
    starts, carried = division
    known = dict(zip(apart, carried, strict=True))
    return starts, tuple(
        known[i] if i in known else _start_inside(inits[i], counts, starts, [(inits[j], known[j]) for j in apart])
        for i in range(len(inits))
    )


def _place_side_by_side(start: int, counts: tuple[int, ...], inits: Inits) -> tuple[Starts, Starts]:
    """Place the containers in one run, in their order; an init container starts after those that run beside it."""
    starts = tuple(itertools.accumulate(counts, initial=start))
    return starts[:-1], tuple(starts[beside] for _, beside in inits)


def _inits_to_carry(counts: tuple[int, ...], inits: Inits) -> list[int]:
    """Return the init containers that fit into no set of a later container or of another one; largest first."""
    apart: list[int] = []
    for i in sorted(range(len(inits)), key=lambda i: inits[i], reverse=True):
        count, beside = inits[i]
        if count > max(counts[beside:], default=0) and (not apart or beside > inits[apart[-1]][1]):
            apart.append(i)
    return apart


def _start_inside(
    init: tuple[int, int], counts: tuple[int, ...], starts: Starts, carried: Sequence[tuple[tuple[int, int], int]]
) -> int:
    """Return the start of an init container's set inside another set: legal sets of all sizes nest."""
    count, beside = init
    for i in range(beside, len(counts)):
        if counts[i] >= count:
            return starts[i]
    return next(start for (size, first), start in carried if size >= count and first >= beside)


@attrs.frozen
class _Sharing:
    """
    A set for the largest init container, and the containers that share it.

    Attributes:
        carrier: the size of the set.
        inside: indices of the containers that share it.
        along: indices of further init containers that share it.
    """

    carrier: int
    inside: tuple[int, ...]
    along: tuple[int, ...]


@attrs.define(eq=False)
class _Search:
    """The search for a division, with a bound on what it may try."""

    _left: int = MOST_DIVISIONS

    def divide(
        self, free_ids: FreeIds, counts: tuple[int, ...], inits: Inits, *, room: int
    ) -> tuple[Starts, Starts] | None:
        """
        Return the start of each set if the sets fit into `room` ids in all; None if they do not.

        `inits` descend by count and ascend by `beside`; each is larger than all containers that do not run beside it.
        """
        if not inits:
            starts = fit(free_ids, counts) if counts else ()
            return None if starts is None else (starts, ())
        for sharing in _sharings(free_ids, counts, inits, room):
            if not self._left:
                break
            self._left -= 1
            division = self._place(free_ids, counts, inits, sharing=sharing, room=room)
            if division is not None:
                return division
        return None

    def _place(
        self, free_ids: FreeIds, counts: tuple[int, ...], inits: Inits, *, sharing: _Sharing, room: int
    ) -> tuple[Starts, Starts] | None:
        """Place the carrier beside the containers that do not share it, and those that share it inside it."""
        outside = [i for i in range(len(counts)) if i not in sharing.inside]
        later = [j for j in range(1, len(inits)) if j not in sharing.along]
        before = [sum(i < inits[j][1] for i in outside) for j in later]
        place = min(sum(i < min(sharing.inside, default=len(counts)) for i in outside), *before, len(outside))
        parts = [counts[i] for i in outside]
        parts.insert(place, sharing.carrier)
        rest = [(inits[j][0], beside + 1) for j, beside in zip(later, before, strict=True)]
        if sum(widest_phase(tuple(parts), rest)) > room:
            return None
        placed = self.divide(free_ids, tuple(parts), rest, room=room)
        if placed is None:
            return None
        first = placed[0][place]
        shared = self._place_sharers(free_ids, counts, inits, sharing=sharing, first=first)
        if shared is None:
            return None
        starts = dict(zip(outside, placed[0][:place] + placed[0][place + 1 :], strict=True))
        starts |= zip(sharing.inside, shared[0], strict=True)
        carried = (
            {0: first} | dict(zip(later, placed[1], strict=True)) | dict(zip(sharing.along, shared[1], strict=True))
        )
        return tuple(starts[i] for i in range(len(counts))), tuple(carried[j] for j in range(len(inits)))

    def _place_sharers(
        self, free_ids: FreeIds, counts: tuple[int, ...], inits: Inits, *, sharing: _Sharing, first: int
    ) -> tuple[Starts, Starts] | None:
        parts, along = _sharers(counts, inits, sharing.inside, sharing.along)
        if sharing.carrier <= free_ids.cell:
            return _place_side_by_side(first, parts, along)
        inner = attrs.evolve(free_ids, free=ones(sharing.carrier) << first)
        return self.divide(inner, parts, along, room=sharing.carrier)


def _sharers(
    counts: tuple[int, ...], inits: Inits, inside: tuple[int, ...], along: tuple[int, ...]
) -> tuple[tuple[int, ...], Inits]:
    """Return the containers and the init containers that share a carrier, as if they were a pod."""
    parts = tuple(counts[i] for i in inside)
    return parts, [(inits[j][0], sum(i < inits[j][1] for i in inside)) for j in along]


def _sharings(free_ids: FreeIds, counts: tuple[int, ...], inits: Inits, room: int) -> Iterator[_Sharing]:
    """
    Yield the ways of sharing a set with the largest init container that leave enough room, the least sharing first.

    Sidecars that run beside it never share it. A set inside a cell may be longer than the init container's own, so that
    others overlap with it; a block contains the sets of all that share it.
    """
    count, beside = inits[0]
    total, seen = sum(counts), set[tuple[int, ...]]()
    few = len(counts) - beside + len(inits) - 1 <= MOST_SUBSETS_OF
    subsets = sorted(_subsets(beside, len(counts), few=few), key=lambda chosen: sum(counts[i] for i in chosen))
    for along in _subsets(1, len(inits), few=few):
        for inside in subsets:
            parts, rest = _sharers(counts, inits, inside, along)
            shared = sum(parts)
            carrier = sum(widest_phase(parts, [(count, 0), *rest])) if count <= free_ids.cell else count
            if shared > carrier or count <= free_ids.cell < carrier or total - shared + carrier > room:
                continue
            sizes = tuple(sorted(parts))
            if len(inits) > 1 or sizes not in seen:
                seen.add(sizes)
                yield _Sharing(carrier, inside, along)


def _subsets(first: int, end: int, *, few: bool) -> Iterator[tuple[int, ...]]:
    """Yield sets of indices, later ones first; unless there are few, only runs that end with the last index."""
    if not few:
        yield from (tuple(range(start, end)) for start in range(end, first - 1, -1))
        return
    for size in range(end - first + 1):
        for chosen in itertools.combinations(range(end - 1, first - 1, -1), size):
            yield tuple(reversed(chosen))
