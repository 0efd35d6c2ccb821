"""
One machine as a picture: a character for each core, a letter for each pod, and below it which pod each letter is.

A torus is drawn as its 4x4 grid, a ring as two rows that close, any other machine as rows of devices. Every state has
a character of its own, so nothing is lost without colour. Does not use more than the standard library, because the
map has to work wherever the scheduler is installed.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.explain.answers import CoreState, Holder, MachinePicture
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import BOLD, GREEN, RED, YELLOW

WIDTH: Final = 25
"""Columns of a machine: three and their gaps fit into 80."""
MOST_HOLDERS: Final = 12
"""Pods below a picture."""
LINK: Final = "2"
UNCLEAR: Final = "35"
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_COLOURS: Final = (117, 215, 150, 210, 183, 222, 151, 153, 174, 192, 218, 180, 159, 229)
_FREE: Final = "·"
_CLOSED: Final = "x"
"""Free, and the machine is withheld."""
MARKS: Final = {
    CoreState.KEPT: ("+", YELLOW),
    CoreState.UNKNOWN: ("?", UNCLEAR),
    CoreState.DOUBLE_BOOKED: ("!", RED),
}

_STATES: Final = frozenset(CoreState)

Segment = tuple[str, str]
"""A text and its code for colour; empty for none."""
Segments = list[Segment]


def free_mark(machine: MachinePicture) -> Segment:
    """Return the character of a free core."""
    return (_CLOSED, RED) if machine.withheld else (_FREE, GREEN)


@attrs.frozen
class Panel:
    """The picture of a machine; `width` in columns, none of its lines is longer."""

    machine: MachinePicture
    width: int = WIDTH

    def lines(self) -> Iterator[Segments]:
        """Yield name, type, drawing, what is free, and the pods."""
        machine = self.machine
        yield [(self._cut(machine.node_name), BOLD)]
        yield [(self._cut(" ".join(filter(None, (machine.instance_type, machine.zone)))), LINK)]
        yield from self._drawing()
        for text, code in states(machine):
            yield [(self._cut(text), code)]
        yield from self._holders()

    def _drawing(self) -> Iterator[Segments]:
        match self.machine.shape:
            case "torus":
                return self._torus()
            case "ring":
                return self._ring()
            case _:
                return self._rows()

    def _torus(self) -> Iterator[Segments]:
        """Yield four rows of four; the links that wrap around are not drawn."""
        between = " ".join("│".center(self.machine.cores_per_device) for _ in range(4))
        for first in range(0, self.machine.devices, 4):
            if first:
                yield [(between, LINK)]
            yield self._row(range(first, first + 4))

    def _ring(self) -> Iterator[Segments]:
        """Yield two rows: the devices in order, and back."""
        half = self.machine.devices // 2
        there, back = self._row(range(half)), self._row(range(self.machine.devices - 1, half - 1, -1))
        yield [("╭", LINK), *there, ("╮", LINK)]
        yield [("│" + " " * length(there) + "│", LINK)]
        yield [("╰", LINK), *back, ("╯", LINK)]

    def _rows(self) -> Iterator[Segments]:
        """Yield rows with as many devices as fit."""
        count = self.machine.devices
        fitting = max((self.width + 1) // (self.machine.cores_per_device + 1), 1)
        for first in range(0, count, fitting):
            yield self._row(range(first, min(first + fitting, count)))

    def _row(self, devices: Sequence[int]) -> Segments:
        row: Segments = []
        for place, device in enumerate(devices):
            if place:
                row.append(("─", LINK))
            size = self.machine.cores_per_device
            row += [self._core(core) for core in range(device * size, (device + 1) * size)]
        return row

    def _core(self, core: int) -> Segment:
        state = state_of(self.machine.cores[core : core + 1])
        if state in MARKS:
            return MARKS[state]
        holder = next((place for place, each in enumerate(self.machine.holders) if _has(each, core)), None)
        return free_mark(self.machine) if state is CoreState.FREE or holder is None else letter(holder)

    def _holders(self) -> Iterator[Segments]:
        """Yield a line for each pod: its letter and its name."""
        for place, holder in enumerate(self.machine.holders[:MOST_HOLDERS]):
            mark, name = _mark(holder, place), f"{holder.namespace}/{holder.name}" if holder.name else "a pod"
            yield [mark, (" ", ""), (self._cut(name, 2), "")]
        more = len(self.machine.holders) - MOST_HOLDERS
        if more > 0:
            yield [(f"and {more} more", LINK)]

    def _cut(self, text: str, taken: int = 0) -> str:
        return cut(text, self.width - taken)


def state_of(letter: str) -> CoreState:
    """Return the state of a core; one that is not known here, of a newer version, counts as unknown."""
    return CoreState(letter) if letter in _STATES else CoreState.UNKNOWN


def states(machine: MachinePicture) -> Iterator[Segment]:
    """Yield what is free of a machine, and what is unusual about it."""
    size = len(machine.cores)
    if "device" in machine.units:
        yield (f"{machine.free_devices}/{machine.devices} devices free", "")
        if len(machine.free_blocks) > 1:
            yield (f"in blocks of {blocks_text(machine)}", "")
    else:
        yield (f"{machine.cores.count(CoreState.FREE)}/{size} cores free", "")
    yield from oddities(machine)


def oddities(machine: MachinePicture) -> Iterator[Segment]:
    """Yield what is unusual about a machine, the most serious first."""
    if machine.withheld:
        yield (machine.withheld.replace("_", " "), RED)
    if CoreState.DOUBLE_BOOKED in machine.cores:
        yield ("double-booked", RED)
    if CoreState.UNKNOWN in machine.cores and machine.withheld != "unknown_holder":
        yield ("unknown ids", UNCLEAR)
    if CoreState.KEPT in machine.cores:
        yield ("space kept", YELLOW)
    if machine.set_aside:
        yield ("set aside", YELLOW)


def blocks_text(machine: MachinePicture) -> str:
    """Return the sizes of the free blocks, the largest first: `8, 2x4` for one of 8 and two of 4."""
    sizes = dict.fromkeys(machine.free_blocks, 0)
    for size in machine.free_blocks:
        sizes[size] += 1
    return ", ".join(f"{count}x{size}" if count > 1 else str(size) for size, count in sizes.items())


def letter(place: int) -> Segment:
    """Return the character of a machine's pod, and its colour."""
    return _LETTERS[place % len(_LETTERS)], f"30;48;5;{_COLOURS[place % len(_COLOURS)]}"


def _mark(holder: Holder, place: int) -> Segment:
    if holder.unknown:
        return MARKS[CoreState.UNKNOWN]
    return MARKS[CoreState.KEPT] if holder.kept else letter(place)


def _has(holder: Holder, core: int) -> bool:
    return not holder.kept and any(first <= core <= last for first, last in holder.cores)


def length(line: Segments) -> int:
    """Return how many columns a line takes."""
    return sum(len(text) for text, _ in line)


def cut(text: str, width: int) -> str:
    """Return a text that cannot control a terminal, cut to a width."""
    shown = printable(text)
    return shown if len(shown) <= width else f"{shown[: max(width - 2, 0)]}.."


def rendered(line: Segments, *, colour: bool, width: int = 0) -> str:
    """Return a line, padded with blanks to a width."""
    text = "".join(f"\033[{code}m{part}\033[0m" if colour and code and part else part for part, code in line)
    return text + " " * max(0, width - length(line))
