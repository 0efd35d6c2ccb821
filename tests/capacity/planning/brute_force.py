"""
The fewest machines for pods, found by trying everything, and what an autoscaler counts: plain numbers, no package code.

Good for pods of four devices and more on nodes without a free block of four: there every pod that fits by count waits
because of fragmentation, and an empty machine holds any pods whose devices, cpu and memory it has in sum.
"""

from collections.abc import Iterator, Sequence

import attrs


@attrs.frozen
class Want:
    """
    A pod that waits.

    Attributes:
        place: the only zone (or type) that it allows; empty for any.
    """

    name: str
    devices: int
    cpu: int
    memory: int
    place: str = ""


@attrs.frozen
class Room:
    """A node with what is free by count, or an empty machine."""

    place: str
    devices: int
    cpu: int
    memory: int

    def without(self, want: Want) -> "Room":
        return Room(self.place, self.devices - want.devices, self.cpu - want.cpu, self.memory - want.memory)

    def takes(self, want: Want) -> bool:
        """Return whether a pod fits by count."""
        if want.place not in ("", self.place):
            return False
        return want.devices <= self.devices and want.cpu <= self.cpu and want.memory <= self.memory


def counted(wants: Sequence[Want], nodes: Sequence[Room]) -> list[Want]:
    """Return the pods that fit by count: the largest cpu first, then memory, then age, each on the first that fits."""
    rooms, fitting = list(nodes), list[Want]()
    for want in sorted(wants, key=lambda want: (-want.cpu, -want.memory)):
        number = next((number for number, node in enumerate(rooms) if node.takes(want)), None)
        if number is not None:
            rooms[number] = rooms[number].without(want)
            fitting.append(want)
    return fitting


def fewest(wants: Sequence[Want], empty: Sequence[Room]) -> int:
    """Return how many machines hold the pods, if each may be any of the empty ones; the pods must fit on some."""
    return next(count for count in range(len(wants) + 1) if any(_packings(tuple(wants), (), count, tuple(empty))))


def _packings(wants: tuple[Want, ...], used: tuple[Room, ...], more: int, empty: tuple[Room, ...]) -> Iterator[bool]:
    """Yield True for each way to place the pods on the rooms and on so many further machines."""
    if not wants:
        yield True
        return
    first, rest = wants[0], wants[1:]
    for number, room in enumerate(used):
        if room.takes(first) and room not in used[:number]:
            yield from _packings(rest, (*used[:number], room.without(first), *used[number + 1 :]), more, empty)
    if more:
        for room in dict.fromkeys(empty):
            if room.takes(first):
                yield from _packings(rest, (*used, room.without(first)), more - 1, empty)
