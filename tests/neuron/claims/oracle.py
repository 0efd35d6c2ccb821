"""
Upstream's CEL compiler as a program (`oracle/main.go`), which says which devices an expression matches.

Other programs are its allocator (`allocator/main.go`) and its end-to-end tests. Their `go.mod` pin the packages. Each
is compiled once (under a minute; the last one in minutes) and kept in the cache folder.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.control_plane.build import build_source
from tests.neuron.claims.expressions import Device

SOURCE: Final = Path(__file__).parent / "oracle"
ALLOCATOR: Final = Path(__file__).parent / "allocator"
END_TO_END: Final = Path(__file__).parents[2] / "end_to_end" / "upstream"


@attrs.frozen
class Answer:
    """Whether a device matches, or the runtime error."""

    matches: bool
    error: str


def answers(cases: Iterable[tuple[str, Sequence[Device]]]) -> list[list[Answer] | None]:
    """Return for each expression the answer for each device; None if upstream does not compile the expression."""
    lines = (
        {"expression": expression, "devices": [attrs.asdict(device) for device in devices]}
        for expression, devices in cases
    )
    return [
        None if each["refusal"] else [Answer(**answer) for answer in each["answers"]] for each in asked(SOURCE, lines)
    ]


def asked(source: Path, cases: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return what a program of upstream's code answers to each case."""
    lines = "\n".join(map(json.dumps, cases))
    done = subprocess.run([build_source(source)], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    for source in (SOURCE, ALLOCATOR, END_TO_END):
        sys.stdout.write(f"{f'{source.name} of upstream':24}{build_source(source)}\n")
