"""
The dashboard as a picture: `python -m tests.monitoring.picture` draws docs/dashboard.svg.

It runs the story, asks Prometheus's engine the dashboard's queries, and draws the answers. It is a drawing of the same
panels and numbers and no screenshot, and says so. Refuses to leave out a panel, or to show a number that no query gave.
"""

import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from tests.monitoring.dashboard import Panel, panels, rows
from tests.monitoring.engine import STEP, Query, evaluated
from tests.monitoring.story import CHAPTER, told
from tests.support.kustomize import ROOT

DRAWN: Final = ROOT / "docs" / "dashboard.svg"
CAPTION: Final = (
    "Drawn by a test from the dashboard's own queries, which Prometheus's engine answered on scrapes of a real process;"
    " not a screenshot of Grafana."
)
COLUMN, LINE, MARGIN, HEAD = 52, 27, 14, 64
COLOURS: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#b877d9", "#f2495c", "#8ab8ff", "#96d98d", "#ffee52")
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#ccccdc}.t{font-size:13px;font-weight:bold}.r{font-size:15px;fill:#fff}"
    ".n{font-size:32px;fill:#73bf69}.a{font-size:10px;fill:#8e8e99}.c{font-size:12px;fill:#8e8e99}"
)
Answers = Mapping[str, Sequence[Mapping[str, Any]]]


@attrs.frozen
class Line:
    """A series with its name."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str


@attrs.frozen
class Frame:
    """Where a chart is, in pixels, and what its edges stand for."""

    x: float
    y: float
    width: float
    height: float
    end: float
    top: float

    def at(self, second: float, value: float) -> tuple[float, float]:
        """Return the coordinates of a point."""
        across, up = second / self.end, value / self.top
        return round(self.x + self.width * across, 1), round(self.y + self.height * (1 - up), 1)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return points in the words of SVG."""
        return " ".join("{},{}".format(*self.at(*point)) for point in points)


def drawn(answers: Answers) -> str:
    """Return the picture of answers, by the title of the panel."""
    shown = list(panels())
    times = [
        at
        for given in answers.values()
        for answer in given
        for series in answer["series"]
        for at, _ in series["points"]
    ]
    end = max(times)
    width = 24 * COLUMN + 2 * MARGIN
    height = max(y + h for _, y, _, h in (panel.place for panel in shown)) * LINE + HEAD + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#111217"/>',
        _text(MARGIN, 26, "neuron-scheduler", "r"),
        _text(MARGIN, 48, CAPTION, "c"),
    ]
    parts += [_text(MARGIN, HEAD + y * LINE + 19, title, "r") for title, y in rows()]
    for panel in shown:
        parts += _panel(panel, _lines(panel, answers[panel.title]), end)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _lines(panel: Panel, answers: Sequence[Mapping[str, Any]]) -> list[Line]:
    found: list[tuple[str, Sequence[tuple[float, float]]]] = []
    for target, answer in zip(panel.targets, answers, strict=True):
        for series in answer["series"]:
            points = [(at, value) for at, value in series["points"]]
            found.append((_named(target.legend, series["labels"]), points))
    return [Line(name, points, COLOURS[i % len(COLOURS)]) for i, (name, points) in enumerate(found) if points]


def _named(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), legend)


def _panel(panel: Panel, lines: list[Line], end: float) -> Iterator[str]:
    column, row, columns, height = panel.place
    x, y = MARGIN + column * COLUMN, HEAD + row * LINE
    wide, high = columns * COLUMN - 6, height * LINE - 6
    yield f'<rect x="{x}" y="{y}" width="{wide}" height="{high}" rx="3" fill="#181b1f" stroke="#2c3235"/>'
    yield _text(x + 8, y + 18, panel.title, "t")
    last = [(line.name, line.points[-1][1]) for line in lines if line.points[-1][0] == end]
    if panel.kind == "stat":
        yield _text(x + 8, y + 62, amount(last[0][1], panel.unit) if last else "no data", "n")
    elif panel.kind == "bargauge":
        yield from _bars(panel, last, Frame(x + 8, y + 28, wide - 16, high - 34, end, 1))
    else:
        yield from _chart(panel, lines, Frame(x + 56, y + 30, wide - 68, high - 74, end, 1))


def _chart(panel: Panel, lines: list[Line], frame: Frame) -> Iterator[str]:
    """Draw lines, or areas one above the other, and a legend."""
    sums: dict[float, float] = {}
    layers = []
    for line in lines:
        below = dict(sums) if panel.stacked else {}
        tops = [(at, value + below.get(at, 0.0)) for at, value in line.points]
        sums.update(tops)
        layers.append((line, [(at, below.get(at, 0.0)) for at, _ in line.points], tops))
    top = max((value for _, _, tops in layers for _, value in tops), default=0.0) or 1.0
    frame = attrs.evolve(frame, top=top * 1.05)
    for share in (0.0, 0.5, 1.0):
        left, height = frame.at(0, top * share)
        yield f'<line x1="{left}" x2="{frame.x + frame.width}" y1="{height}" y2="{height}" stroke="#2c3235"/>'
        yield _text(left - 6, height + 4, amount(top * share, panel.unit), "a", anchor="end")
    for at in range(0, int(frame.end), CHAPTER):
        yield _text(*frame.at(at, -top * 0.1), f"{at // 60} min", "a")
    for line, bottoms, tops in layers:
        if panel.stacked:
            area = f"{frame.path(tops)} {frame.path(reversed(bottoms))}"
            yield f'<polygon points="{area}" fill="{line.colour}" fill-opacity="0.35"/>'
        for piece in _pieces(tops):
            drawn_as = 'fill="none" stroke-width="1.5" stroke-linecap="round"'
            yield f'<polyline points="{frame.path(piece)}" stroke="{line.colour}" {drawn_as}/>'
    yield from _legend(lines, frame)


def _pieces(points: Sequence[tuple[float, float]]) -> list[list[tuple[float, float]]]:
    """Return the parts of a line between the times at which there was no value."""
    pieces: list[list[tuple[float, float]]] = []
    for point in points:
        if not pieces or point[0] - pieces[-1][-1][0] > STEP:
            pieces.append([])
        pieces[-1].append(point)
    return pieces


def _legend(lines: list[Line], frame: Frame) -> Iterator[str]:
    x, y = frame.x - 46, frame.y + frame.height + 30
    for position, line in enumerate(lines):
        width = 22 + 6.2 * len(line.name)
        if x + width > frame.x + frame.width:
            yield _text(x, y, f"and {len(lines) - position} more", "a")
            return
        yield f'<rect x="{x:.1f}" y="{y - 8:.1f}" width="10" height="8" fill="{line.colour}"/>'
        yield _text(x + 14, y, line.name, "a")
        x += width


def _bars(panel: Panel, last: list[tuple[str, float]], frame: Frame) -> Iterator[str]:
    """Draw a bar for the last value of each series, and say how many are left out."""
    last.sort(key=lambda bar: -bar[1])
    most = max((value for _, value in last), default=0.0) or 1.0
    room = int(frame.height // 18)
    shown = last if len(last) <= room else last[: room - 1]
    for position, (name, value) in enumerate(shown):
        y = frame.y + 18 * position
        yield _text(frame.x, y + 12, name, "a")
        width = (frame.width - 190) * value / most
        yield f'<rect x="{frame.x + 130}" y="{y + 3}" width="{width:.1f}" height="10" fill="#5794f2"/>'
        yield _text(frame.x + 138 + width, y + 12, amount(value, panel.unit), "a")
    if len(shown) < len(last):
        yield _text(frame.x, frame.y + 18 * len(shown) + 12, f"and {len(last) - len(shown)} more", "a")


def _text(x: float, y: float, text: str, style: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(text, quote=False)}</text>'


def amount(value: float, unit: str) -> str:
    """Return a number for people."""
    if unit == "s":
        for size, name in ((60.0, "min"), (1.0, "s"), (0.001, "ms")):
            if value >= size:
                return f"{value / size:.3g} {name}"
        return f"{value * 1e6:.3g} µs" if value else "0"
    return f"{value:.3g}{'/s' if unit in ('ops', 'reqps') else ''}"


async def _draw() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        story = await told(folder)
        shown = list(panels())
        queries = [Query(target.expr, 0, story.end) for panel in shown for target in panel.targets]
        found = iter(evaluated(story.scrapes(), end=story.end, queries=queries, folder=folder).answers)
        DRAWN.write_text(drawn({panel.title: [next(found) for _ in panel.targets] for panel in shown}))
    sys.stdout.write(f"{DRAWN}\n")


if __name__ == "__main__":
    anyio.run(_draw)
