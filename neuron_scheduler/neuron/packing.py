"""
Where runs and aligned blocks fit into the free ids of a machine: the arithmetic behind `topology`.

One geometry serves all shapes. Ids are in *cells* of equal size; inside a cell any run is legal. Larger sets are
aligned *blocks* of whole cells, whose sizes divide one another. A line is one cell without blocks; a torus has a cell
for each device and blocks of 4, 8 and 16 cells. Because blocks nest, placing the largest first never makes the others
fit worse; only runs of different lengths need a search.
"""

from collections.abc import Sequence

import attrs

from neuron_scheduler.model.memo import memoise

MOST_REMEMBERED = 1 << 11
"""Answers that a memo of free cores keeps, of up to 700 bytes: full within minutes, also where few pods come and go."""
MOST_STEPS = 2_000
"""Steps of the search for several runs; after that the answer is "does not fit", which is safe."""
MOST_PARTS = 128
"""Runs longer than one id that are searched for together; more do not fit."""


def ones(count: int) -> int:
    return (1 << count) - 1


@memoise(maxsize=MOST_REMEMBERED)
def runs(mask: int) -> tuple[tuple[int, int], ...]:
    """Return (start, length) of each maximal run of set bits, ascending."""
    listed = []
    start = 0
    while mask:
        zeros = (mask & -mask).bit_length() - 1
        mask >>= zeros
        length = (mask ^ (mask + 1)).bit_length() - 1
        start += zeros
        listed.append((start, length))
        mask >>= length
        start += length
    return tuple(listed)


@attrs.frozen
class FreeIds:
    """
    The free ids of a machine in one unit.

    Attributes:
        free: mask of free ids.
        size: number of ids, free or not.
        width: ids per device.
        cell: ids per cell; `size` is a multiple of it.
        blocks: sizes of aligned blocks in ids, ascending, each a multiple of the one before and of `cell`.
        levels: for each device 0 if it is used in part, else the size in devices of its free block.
    """

    free: int
    size: int
    width: int
    cell: int
    blocks: tuple[int, ...]
    levels: tuple[int, ...]

    def level(self, start: int, count: int) -> int:
        """Return the size in devices of the largest free block that a set would cut, 0 if it cuts none."""
        return max(self.levels[start // self.width : (start + count - 1) // self.width + 1])

    def bins(self, free: int) -> Sequence[tuple[int, int]]:
        """Return (start, length) of the maximal free runs that cross no border of a cell, ascending."""
        if self.cell == self.size:
            return runs(free)
        inside = ones(self.cell)
        return [
            (base + start, length)
            for base in range(0, self.size, self.cell)
            for start, length in runs(free >> base & inside)
        ]

    def block_starts(self, free: int, count: int) -> list[int]:
        """Return where aligned blocks of `count` ids are free; nowhere for more ids than there are."""
        if count > self.size:
            return []  # a pod may ask for so many that the mask would not fit into memory
        block = ones(count)
        return [start for start in range(0, self.size, count) if free >> start & block == block]


def best_start(free_ids: FreeIds, free: int, count: int) -> int | None:
    """
    Return the start of the best set of `count` ids within `free`; None if there is no room.

    In the smallest free block. For runs then: using the fewest whole devices, in the smallest free run, not across a
    power-of-two border inside a device, at an end of the free run (the rest stays in one piece), at the lowest id.
    There is no rule for which end: it makes no difference (simulated for 6 and 12 devices at full load).
    """
    if count > free_ids.cell or free_ids.cell == 1:
        starts = free_ids.block_starts(free, count)
        return min(starts, key=lambda start: (free_ids.level(start, count), start), default=None)
    best: tuple[int, int, int, bool, bool, int] | None = None
    seen: set[tuple[int, int, int]] = set()
    for first, length in free_ids.bins(free):
        last = first + length - count
        # The same run at the same level in a later cell cannot be better, since its ids are higher.
        run = (first % free_ids.cell, length, free_ids.levels[first // free_ids.width])
        if last < first or run in seen:
            continue
        seen.add(run)
        for start in {first, last, _align(free_ids, first, count), _align(free_ids, last, count, up=False)}:
            if first <= start <= last:
                key = _harm(free_ids, start, count, bin_=(first, length))
                if best is None or key < best:
                    best = key
    return best[-1] if best else None


def _harm(free_ids: FreeIds, start: int, count: int, *, bin_: tuple[int, int]) -> tuple[int, int, int, bool, bool, int]:
    """Return what `best_start` compares; smaller is better."""
    first, length = bin_
    levels = free_ids.levels[start // free_ids.width : (start + count - 1) // free_ids.width + 1]
    whole = len(levels) - levels.count(0)
    inside = first < start < first + length - count
    return max(levels), whole, length, not _is_aligned(free_ids, start, count), inside, start


def fit(free_ids: FreeIds, parts: Sequence[int]) -> tuple[int, ...] | None:
    """
    Return a start for each part, so that the sets are disjoint and free; None if they do not fit.

    Ascending in the order of the parts if possible, then close together (inside the smallest aligned block), then in
    the smallest free blocks.
    """
    if len(parts) == 1:
        start = best_start(free_ids, free_ids.free, parts[0])
        return None if start is None else (start,)
    total = sum(parts)
    for lay in (_lay_in_order, _lay_packed):
        for extent in (free_ids.cell, *free_ids.blocks):
            fitting: list[tuple[int, int, tuple[int, ...]]] = []
            for base in range(0, free_ids.size if extent >= total else 0, extent):
                free = free_ids.free & ones(extent) << base
                starts = lay(free_ids, free, parts) if free.bit_count() >= total else None
                if starts is not None:
                    level = max(free_ids.level(*part) for part in zip(starts, parts, strict=True))
                    fitting.append((level, base, starts))
            if fitting:
                return min(fitting)[-1]
    return None


def _align(free_ids: FreeIds, start: int, count: int, *, up: bool = True) -> int:
    """Return the next start, up or down, that is a multiple of the power of two that holds `count` ids."""
    if count > free_ids.width:
        return start
    grain = 1 << (count - 1).bit_length()
    return (start + grain - 1 if up else start) // grain * grain


def _is_aligned(free_ids: FreeIds, start: int, count: int) -> bool:
    """Return whether a run stays within one aligned power of two inside its device; True for longer runs."""
    if count > free_ids.width:
        return True
    grain = 1 << (count - 1).bit_length()
    offset = start % free_ids.width
    return offset // grain == (offset + count - 1) // grain and offset + count <= free_ids.width


def _lay_in_order(free_ids: FreeIds, free: int, parts: Sequence[int]) -> tuple[int, ...] | None:
    """Place the parts in ascending order, at aligned starts if all fit so, else each at the first start that fits."""
    bins = free_ids.bins(free)
    for aligned in (True, False):
        starts: list[int] = []
        cursor = 0
        for count in parts:
            start = _next_start(free_ids, free, bins=bins, count=count, cursor=cursor, aligned=aligned)
            if start is None:
                break
            starts.append(start)
            cursor = start + count
        else:
            return tuple(starts)
    return None


def _next_start(
    free_ids: FreeIds, free: int, *, bins: Sequence[tuple[int, int]], count: int, cursor: int, aligned: bool
) -> int | None:
    if count > free_ids.cell:
        return next((start for start in free_ids.block_starts(free, count) if start >= cursor), None)
    for first, length in bins:
        start = max(first, cursor)
        if aligned:
            start = _align(free_ids, start, count)
        if start + count <= first + length:
            return start
    return None


def _lay_packed(free_ids: FreeIds, free: int, parts: Sequence[int]) -> tuple[int, ...] | None:
    """Place the parts where they fit, the largest first; parts of one size ascend in their order."""
    order = sorted(range(len(parts)), key=lambda i: (-parts[i], i))
    starts: dict[int, int] = {}
    blocks = [i for i in order if parts[i] > free_ids.cell]
    for i in blocks:
        start = best_start(free_ids, free, parts[i])
        if start is None:
            return None
        starts[i] = start
        free &= ~(ones(parts[i]) << start)
    small = order[len(blocks) :]
    # Preferred bins come first: without whole devices, then in small free blocks, then short runs.
    bins = sorted(free_ids.bins(free), key=lambda b: (free_ids.level(*b), b[1], b[0]))
    chosen = _assign([parts[i] for i in small], [length for _, length in bins])
    if chosen is None:
        return None
    cursors = [first for first, _ in bins]
    for i, where in sorted(zip(small, chosen, strict=True)):
        starts[i] = cursors[where]
        cursors[where] += parts[i]
    return _in_order_by_size(parts, starts)


def _in_order_by_size(parts: Sequence[int], starts: dict[int, int]) -> tuple[int, ...]:
    """Return the starts in the order of the parts; parts of one size get theirs in ascending order."""
    by_size: dict[int, list[int]] = {}
    for i, start in starts.items():
        by_size.setdefault(parts[i], []).append(start)
    ascending = {count: iter(sorted(same_size)) for count, same_size in by_size.items()}
    return tuple(next(ascending[count]) for count in parts)


def _assign(items: list[int], room: list[int]) -> list[int] | None:
    """
    Return a bin for each item (descending sizes), or None if they do not fit: bin packing, by search with memoisation.
    """
    long = sum(item > 1 for item in items)
    if sum(items) > sum(room) or long > MOST_PARTS:
        return None
    chosen: list[int] = []
    failed: set[tuple[int, tuple[int, ...]]] = set()

    def search(index: int) -> bool:
        if index == long:
            return True
        state = (index, tuple(sorted(room)))
        if state in failed or len(failed) >= MOST_STEPS:
            return False
        tried: set[int] = set()
        for where, left in enumerate(room):
            if left < items[index] or left in tried:
                continue
            tried.add(left)
            room[where] -= items[index]
            chosen.append(where)
            if search(index + 1):
                return True
            chosen.pop()
            room[where] += items[index]
        failed.add(state)
        return False

    if not search(0):
        return None
    for _ in items[long:]:
        where = next(where for where, left in enumerate(room) if left)
        room[where] -= 1
        chosen.append(where)
    return chosen
