"""
The fleet as a picture, and each pod's outcome as a line, with rich.

One character for a core, a letter and a colour for a pod. A torus is drawn as its 4x4 grid, a ring as two rows that
close, any other machine as a line. The only module that imports rich: without rich, only the demo does not work.
"""

import os
import re
import sys
from collections.abc import Sequence
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Final

import attrs
from rich import box
from rich.align import Align
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sandbox.demo.occupancy import Machine, Occupancy
from sandbox.fleet import Shape

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_COLOURS: Final = (
    "#8ecae6", "#ffb703", "#90be6d", "#f28482", "#cdb4db", "#f6bd60", "#84a59d",
    "#a2d2ff", "#e5989b", "#b5e48c", "#ffafcc", "#d4a373", "#9bf6ff", "#fdffb6",
)  # fmt: skip
_REMOTE_FONT: Final = re.compile(r"@font-face \{[^}]*\}\s*")
WIDTH: Final = 130  # columns of the exported screen: five machines
_PANEL: Final = 26  # columns of a machine: three and their gaps fit into 80
_STACK: Final = 3  # flat machines above each other are about as high as one torus
_LINK: Final = "grey50"


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a pod, as one row shows it."""

    pod: str
    asked: str
    node: str = ""
    got: str = ""
    refusal: str = ""


class ReaderGoneError(Exception):
    """Nobody reads the output any more, as after `make demo | head`."""


class Screen(Console):
    """A console that says so when its reader has gone, where rich's own would raise `SystemExit` inside a task."""

    def on_broken_pipe(self) -> None:
        """Write nothing more, also not at the end of the interpreter, and raise `ReaderGoneError`."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise ReaderGoneError


@attrs.define(eq=False)
class Legend:
    """A letter and a colour for each pod, assigned when it is first drawn and then kept."""

    _places: dict[str, int] = attrs.field(factory=dict)

    def letter(self, pod: str) -> str:
        """Return the pod's character."""
        return _LETTERS[self._place(pod) % len(_LETTERS)]

    def style(self, pod: str) -> str:
        """Return the style: dark on the pod's colour."""
        return f"bold #1b1b1b on {_COLOURS[self._place(pod) % len(_COLOURS)]}"

    def mark(self, pod: str) -> Text:
        """Return the letter in its colour."""
        return Text(f" {self.letter(pod)} ", style=self.style(pod))

    def _place(self, pod: str) -> int:
        return self._places.setdefault(pod, len(self._places))


def fleet(occupancy: Occupancy, legend: Legend) -> RenderableType:
    """Return every machine, as many side by side as fit; flat ones are stacked, because a torus is high."""
    flat = [machine for machine in occupancy.machines.values() if machine.type.shape is not Shape.TORUS]
    torus = [machine for machine in occupancy.machines.values() if machine.type.shape is Shape.TORUS]
    stacks: list[RenderableType] = [
        Group(*(_panel(machine, legend) for machine in flat[first : first + _STACK]))
        for first in range(0, len(flat), _STACK)
    ]
    return Columns([*stacks, *(_panel(machine, legend) for machine in torus)], padding=(0, 0))


def outcomes(rows: Sequence[Outcome], legend: Legend) -> RenderableType:
    """Return a table of pods; neighbours with the same refusal are one row."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("", "pod", "asks for", "node", "gets"):
        table.add_column(heading, no_wrap=heading != "gets", overflow="fold")
    for refusal, alike in groupby(rows, lambda row: row.refusal):
        first, *others = alike
        if refusal:
            pods = f"{first.pod} to {others[-1].pod}" if others else first.pod
            table.add_row("", pods, first.asked, "", Text(refusal, style="yellow"))
            continue
        for row in (first, *others):
            table.add_row(legend.mark(row.pod), row.pod, row.asked, row.node, Text(row.got, style="green"))
    return table


def key(rows: Sequence[Outcome], legend: Legend) -> RenderableType:
    """Return the letters of the placed pods, with what each has got."""
    marked = [Text.assemble(legend.mark(row.pod), f" {row.pod} ", (row.got, "green")) for row in rows if row.node]
    return Columns(marked, padding=(0, 2))


def act(number: int, title: str, text: str) -> RenderableType:
    """Return the heading of an act."""
    return Group(Text(), Text(f"{number}. {title}", style="bold"), Text(text, style="dim"), Text())


def export(path: str, screen: RenderableType) -> None:
    """Write a screen as an SVG without rich's fonts, which a viewer would load from the network."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(screen)
    drawing = console.export_svg(title="neuron-scheduler demo")
    Path(path).write_text(_REMOTE_FONT.sub("", drawing))


def _panel(machine: Machine, legend: Legend) -> Panel:
    shapes = {Shape.TORUS: _torus, Shape.RING: _ring}
    return Panel(
        Align.center(Text("\n").join(shapes.get(machine.type.shape, _line)(machine, legend))),
        title=f"[bold]{machine.node}[/] {machine.type.name}",
        subtitle=f"[dim]{machine.free_devices} of {machine.type.devices} devices free[/]",
        border_style=_LINK,
        width=_PANEL,
    )


def _torus(machine: Machine, legend: Legend) -> list[Text]:
    """Return four rows of four; the links that wrap around are not drawn."""
    size = machine.type.cores_per_device
    between = Text(" ".join("│".center(size) for _ in range(4)), style=_LINK)
    lines = [_row(machine, legend, range(first, first + 4)) for first in range(0, 16, 4)]
    return [lines[0], *(line for row in lines[1:] for line in (between, row))]


def _ring(machine: Machine, legend: Legend) -> list[Text]:
    """Return two rows: the devices in order, and back."""
    half = machine.type.devices // 2
    there = _row(machine, legend, range(half))
    back = _row(machine, legend, range(machine.type.devices - 1, half - 1, -1))
    return [
        Text.assemble(("╭", _LINK), there, ("╮", _LINK)),
        Text("│" + " " * len(there) + "│", style=_LINK),
        Text.assemble(("╰", _LINK), back, ("╯", _LINK)),
    ]


def _line(machine: Machine, legend: Legend) -> list[Text]:
    """Return rows with as many devices as the panel is wide."""
    count, fitting = machine.type.devices, max((_PANEL - 3) // (machine.type.cores_per_device + 1), 1)
    return [_row(machine, legend, range(first, min(first + fitting, count))) for first in range(0, count, fitting)]


def _row(machine: Machine, legend: Legend, devices: Sequence[int]) -> Text:
    row = Text()
    for place, device in enumerate(devices):
        if place:
            row.append("─", style=_LINK)
        size = machine.type.cores_per_device
        for holders in machine.cores[device * size : (device + 1) * size]:
            if holders:
                row.append(legend.letter(holders[0]), style=legend.style(holders[0]))
            else:
                row.append("·", style="dim")
    return row
