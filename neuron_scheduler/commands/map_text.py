"""
The fleet for a terminal: pictures of a few machines, a line for each of many; what is free first, full ones last.

The lines of many machines are cut, because nobody reads hundreds of them: the last ones are left out and counted.

A machine's picture has a character for each core, a letter for each pod, and below it which pod each letter is. A torus
is drawn as its 4x4 grid, a ring as two rows that close, any other machine as rows of devices. Every state has a
character of its own, so nothing is lost without colour.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Final

import attrs

from neuron_scheduler.commands.output import cut
from neuron_scheduler.explain.answers import CoreState, Fleet, Holder, MachinePicture, TypeSummary
from neuron_scheduler.explain.fleet import with_machine
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.wording import count_text
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import BOLD, GREEN, RED, YELLOW, Paragraphs

WIDTH: Final = 25
"""Columns of a machine: three and their gaps fit into 80."""
MOST_HOLDERS: Final = 12
"""Pods below a picture."""
ENDS: Final = 8
"""Last characters of a pod's name that are always shown: replicas differ there."""
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
BY: Final = ("type", "ultraserver", "zone")
"""By what machines are grouped."""
MOST_PICTURES: Final = 6
"""Machines that are drawn; more of them get a line each."""
MOST_LINES: Final = 12
"""Machines of a group that get a line, if not all are asked for."""
_NAMED: Final = {
    "type": ("", "No instance type"),
    "ultraserver": ("UltraServer ", "In no UltraServer"),
    "zone": ("Zone ", "In no zone"),
}
_GAP: Final = "  "
_HIGHEST: Final = 14
"""Lines of a stack of pictures."""
_SHORTEST_NAME: Final = 16
_MOST_CELLS: Final = 32
_CELLS_TOGETHER: Final = 4
_USED: Final = ("#", "")
_PART: Final = ("%", "")
_WORDS: Final = {
    "#": "used",
    "%": "used in part",
    "·": "free",
    "x": "free, but withheld",
    "+": "kept for a pending pod",
    "?": "unknown ids",
    "!": "double-booked",
}


def free_mark(machine: MachinePicture) -> Segment:
    return (_CLOSED, RED) if machine.withheld else (_FREE, GREEN)


@attrs.frozen
class Panel:
    """The picture of a machine; `width` in columns, none of its lines is longer."""

    machine: MachinePicture
    width: int = WIDTH

    def lines(self) -> Iterator[Segments]:
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
        half = self.machine.devices // 2
        there, back = self._row(range(half)), self._row(range(self.machine.devices - 1, half - 1, -1))
        yield [("╭", LINK), *there, ("╮", LINK)]
        yield [("│" + " " * length(there) + "│", LINK)]
        yield [("╰", LINK), *back, ("╯", LINK)]

    def _rows(self) -> Iterator[Segments]:
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
        holder = next((place for place, each in enumerate(self.machine.holders) if _holds(each, core)), None)
        return free_mark(self.machine) if state is CoreState.FREE or holder is None else letter(holder)

    def _holders(self) -> Iterator[Segments]:
        for place, holder in enumerate(self.machine.holders[:MOST_HOLDERS]):
            mark, name = _mark(holder, place), f"{holder.namespace}/{holder.name}" if holder.name else "a pod"
            yield [mark, (" ", ""), (cut(name, self.width - 2, ENDS), "")]
        more = len(self.machine.holders) - MOST_HOLDERS
        if more > 0:
            yield [(f"and {more} more", LINK)]

    def _cut(self, text: str) -> str:
        return cut(text, self.width)


def state_of(letter: str) -> CoreState:
    """Return the state of a core; one that is not known here, of a newer version, counts as unknown."""
    return CoreState(letter) if letter in _STATES else CoreState.UNKNOWN


def states(machine: MachinePicture) -> Iterator[Segment]:
    size = len(machine.cores)
    if "device" in machine.units:
        yield (f"{machine.free_devices}/{machine.devices} devices free", "")
        if len(machine.free_blocks) > 1:
            yield (f"in blocks of {blocks_text(machine)}", "")
    else:
        yield (f"{machine.cores.count(CoreState.FREE)}/{size} cores free", "")
    yield from oddities(machine)


def oddities(machine: MachinePicture) -> Iterator[Segment]:
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


def _holds(holder: Holder, core: int) -> bool:
    return not holder.kept and any(first <= core <= last for first, last in holder.cores)


def length(line: Segments) -> int:
    return sum(len(text) for text, _ in line)


@attrs.frozen
class MapText:
    """
    Draws fleets.

    Attributes:
        by: one of `BY`.
        every_machine: all machines get a line, and a picture if they are few.
    """

    paragraphs: Paragraphs
    by: str = BY[0]
    every_machine: bool = False

    def lines(self, fleet: Fleet) -> Iterator[str]:
        fleet = attrs.evolve(fleet, machines=tuple(sorted(fleet.machines, key=_from_free_to_full)))
        if not fleet.machines:
            yield "No node has Neuron."
        for of in fleet.types if fleet.leaves_out else ():
            yield from self._heading(_sums_text(of))
        if fleet.machines:
            yield from self._heading(sums_of("Pictured" if fleet.leaves_out else "All", fleet.machines))
        pictures = len(fleet.machines) <= MOST_PICTURES
        if pictures and self.by == BY[0]:  # each picture has its type
            yield from self._pictures(fleet.machines)
        else:
            for name, machines in group_machines(fleet, self.by):
                yield ""
                whole = _wholeness(machines) if self.by == BY[1] and not fleet.leaves_out else ""
                yield from self._heading(f"{sums_of(name, machines)}{whole}")
                yield from self._pictures(machines) if pictures else self._table(machines)
        if fleet.machines:
            yield from self._legend(fleet.machines, pictures=pictures)
        yield from self.paragraphs.notes(fleet.notes)

    def node_lines(self, machine: MachinePicture) -> Iterator[str]:
        yield from self._pictures((machine,), self.paragraphs.width)
        yield from self._legend((machine,), pictures=True)

    def _pictures(self, machines: Sequence[MachinePicture], width_of_each: int = WIDTH) -> Iterator[str]:
        """Yield the machines, as many side by side as fit; low pictures are stacked, because a torus is high."""
        row: list[tuple[int, list[Segments]]] = []
        for machine in machines:
            panel = [*Panel(machine, min(width_of_each, self.paragraphs.width)).lines()]
            width = max(WIDTH, *map(length, panel))
            if row and len(row[-1][1]) + len(panel) < _HIGHEST and width <= row[-1][0]:
                row[-1][1].extend([[], *panel])
                continue
            if row and sum(taken + len(_GAP) for taken, _ in row) + width > self.paragraphs.width:
                yield from self._row(row)
                row = []
            row.append((width, panel))
        if row:
            yield from self._row(row)

    def _row(self, row: Sequence[tuple[int, list[Segments]]]) -> Iterator[str]:
        yield ""
        empty: Segments = []
        for lines in zip_longest(*(panel for _, panel in row), fillvalue=empty):
            cells = [self._render(line, width) for line, (width, _) in zip(lines, row, strict=True)]
            yield _GAP.join(cells).rstrip()

    def _table(self, machines: Sequence[MachinePicture]) -> Iterator[str]:
        """
        Yield a line for each machine: its name, a character for each device, what is free, what is unusual.

        If not all are asked for, neighbours with equal lines share one.
        """
        lines = [(machine, [_bar(machine), *self._figures(machine), _oddities_text(machine)]) for machine in machines]
        alike = (
            [[*of] for _, of in groupby(lines, key=itemgetter(1))] if not self.every_machine else [[o] for o in lines]
        )
        shown = alike[: None if self.every_machine else MOST_LINES]
        rows = [of[0][1] for of in shown]
        names = [(of[0][0].node_name, f" and {len(of) - 1} more" if len(of) > 1 else "") for of in shown]
        widths = [max(map(length, column)) for column in zip(*rows, strict=True)]
        room = self.paragraphs.width - sum(len(_GAP) + width for width in (0, *widths))
        name_width = min(max(room, _SHORTEST_NAME), max(len(printable(name)) + len(more) for name, more in names))
        for (name, more), row in zip(names, rows, strict=True):
            cells = [self._render(cell, width) for cell, width in zip(row, widths, strict=True)]
            named = cut(name, name_width - len(more)) + more
            yield _GAP + _GAP.join((named.ljust(name_width), *cells)).rstrip()
        rest = [machine for of in alike[len(shown) :] for machine, _ in of]
        if rest:
            devices = count_text(sum(machine.free_devices for machine in rest), "free device")
            more = f"{_GAP}and {count_text(len(rest), 'more node')} with {devices} (-o wide lists all)"
            yield self._render([(more, LINK)])

    def _figures(self, machine: MachinePicture) -> list[Segments]:
        kind: list[Segments] = [] if self.by == BY[0] else [[(cut(machine.instance_type, WIDTH), LINK)]]
        in_devices = "device" in machine.units
        free = f"{machine.free_devices}/{machine.devices} free" if in_devices else next(states(machine))[0]
        return [[(free, "")], [(blocks_text(machine), LINK)], *kind]

    def _legend(self, machines: Sequence[MachinePicture], *, pictures: bool) -> Iterator[str]:
        used = {state_of(letter) for machine in machines for letter in set(machine.cores)}
        marks = [mark for state, (mark, _) in MARKS.items() if state in used]
        if CoreState.FREE in used:
            marks += sorted({free_mark(machine)[0] for machine in machines})
        if pictures:
            parts = ["a character is a core", *(["A-z a pod"] if CoreState.HELD in used else [])]
        else:
            parts = ["a character is a device", *(["# used", "% used in part"] if CoreState.HELD in used else [])]
        yield ""
        yield from self.paragraphs.wrap("; ".join([*parts, *(f"{mark} {_WORDS[mark]}" for mark in marks)]) + ".")

    def _render(self, line: Segments, width: int = 0) -> str:
        text = "".join(self.paragraphs.in_colour(part, code) if part else part for part, code in line)
        return text + " " * (width - length(line))

    def _heading(self, text: str) -> Iterator[str]:
        return self.paragraphs.wrap(text, rest=_GAP, code=BOLD)


def _from_free_to_full(machine: MachinePicture) -> tuple[int, int, bool, str, str]:
    """Return the order: the largest free block, then most free; of the rest full ones last, and equal ones together."""
    free = machine.free_devices if "device" in machine.units else machine.cores.count(CoreState.FREE)
    free = 0 if machine.withheld else free
    return -max(machine.free_blocks, default=0), -free, not any(oddities(machine)), machine.withheld, machine.cores


def group_machines(fleet: Fleet, by: str) -> list[tuple[str, list[MachinePicture]]]:
    """Return the machines by type, UltraServer or zone, in the order of these names; those without one come last."""
    groups: dict[str, list[MachinePicture]] = {}
    for machine in fleet.machines:
        key = {"type": machine.instance_type, "ultraserver": machine.ultraserver, "zone": machine.zone}[by]
        groups.setdefault(key, []).append(machine)
    named, missing = _NAMED[by]
    ordered = sorted(groups.items(), key=lambda item: (not item[0], item[0]))
    return [(f"{named}{key}" if key else missing, machines) for key, machines in ordered]


def sums_of(name: str, machines: Sequence[MachinePicture]) -> str:
    return _sums_text(reduce(with_machine, machines, TypeSummary(name)))


def _sums_text(of: TypeSummary) -> str:
    total = f"{of.instance_type}: {count_text(of.nodes, 'node')}, {count_text(of.devices, 'device')}"
    return f"{total}: {of.free} free (largest block {of.largest_block}), {of.used} used, {of.withheld} withheld"


def _wholeness(machines: Sequence[MachinePicture]) -> str:
    """Return whether all machines of an UltraServer are there and wholly free; empty if that is not known."""
    size = machines[0].ultraserver_size
    if not size:
        return ""
    whole = sum(machine.free_devices == machine.devices for machine in machines)
    if len(machines) < size:
        return f"; has {len(machines)} of its {size} machines, {whole} free"
    return "; intact" if whole == size else f"; {whole} of its {size} machines are free"


def _oddities_text(machine: MachinePicture) -> Segments:
    return [part for each in oddities(machine) for part in ((", ", ""), each)][1:]


def _bar(machine: MachinePicture) -> Segments:
    """Return a character for each device, in groups of four; a machine with very many gets none."""
    if machine.devices > _MOST_CELLS:
        return [("", "")]
    return _cells(machine.devices, machine.cores_per_device, machine.cores, free_mark(machine))


@memoise(maxsize=4096)
def _cells(devices: int, size: int, cores: str, free: Segment) -> Segments:
    bar = list[Segment]()
    for device in range(devices):
        if device and device % _CELLS_TOGETHER == 0:
            bar.append((" ", ""))
        bar.append(_device(cores[device * size : (device + 1) * size], free))
    return bar


def _device(cores: str, free: Segment) -> Segment:
    for state in (CoreState.DOUBLE_BOOKED, CoreState.UNKNOWN, CoreState.KEPT):
        if state in cores:
            return MARKS[state]
    held = cores.count(CoreState.HELD)
    if not held:
        return free
    return _USED if held == len(cores) else _PART
