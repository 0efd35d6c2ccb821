"""
How an answer is printed: text for a person, or one JSON or YAML document for a program.

Text from the cluster cannot control the terminal: what is not printable is an escape, in every form.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs

from neuron_scheduler.explain.answers import to_json
from neuron_scheduler.model.wording import clip
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import write_out

DOCUMENTS: Final = ("json", "yaml")
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def write(answer: attrs.AttrsInstance, form: str, lines: Iterable[str]) -> None:
    """Print an answer as a document, or as lines; codes for colour have to be added by their writer."""
    write_out(document(to_json(answer), form) if form in DOCUMENTS else "".join(f"{line}\n" for line in lines))


def document(value: Any, form: str) -> str:
    """Return JSON or YAML of JSON values, in printable ASCII."""
    if form == "yaml":
        import yaml  # takes 30 ms to import

        return yaml.safe_dump(value, sort_keys=False, allow_unicode=False, width=1 << 20)
    return f"{json.dumps(value, indent=2)}\n"


def age(seconds: float) -> str:
    """Return a duration in its largest unit and the next one: `45s`, `5m30s`, `3h12m`, `40d`."""
    whole = max(0, int(seconds))
    for (unit, name), (part, part_name) in pairwise(_UNITS):
        if whole >= unit:
            rest = whole % unit // part
            return f"{whole // unit}{name}{f'{rest}{part_name}' if rest else ''}"
    return f"{whole}s"


def cut(text: str, width: int, end: int = 0) -> str:
    """Return a text that cannot control a terminal, cut to a width; its last `end` characters are kept."""
    shown = printable(text)
    return shown if len(shown) <= width else f"{shown[: max(width - 2 - end, 0)]}..{shown[len(shown) - end :]}"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield aligned lines, the columns three blanks apart; the last one may be long."""
    shown = [[printable(clip(cell)) for cell in row[:-1]] + [printable(row[-1])] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
