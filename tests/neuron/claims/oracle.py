"""
Upstream's CEL compiler as a program (`oracle/main.go`), which says which devices an expression matches.

`oracle/go.mod` pins its packages. It is compiled once (under a minute) and kept in the cache folder.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.control_plane.build import build_source
from tests.neuron.claims.expressions import Device

SOURCE: Final = Path(__file__).parent / "oracle"


@attrs.frozen
class Answer:
    """Whether a device matches, or the runtime error."""

    matches: bool
    error: str


def answers(cases: Iterable[tuple[str, Sequence[Device]]]) -> list[list[Answer] | None]:
    """Return for each expression the answer for each device; None if upstream does not compile the expression."""
    lines = [
        json.dumps({"expression": expression, "devices": [attrs.asdict(device) for device in devices]})
        for expression, devices in cases
    ]
    done = subprocess.run([build_source(SOURCE)], input="\n".join(lines), capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [None if each["refusal"] else [Answer(**answer) for answer in each["answers"]] for each in found]


if __name__ == "__main__":
    sys.stdout.write(f"{'CEL of upstream':24}{build_source(SOURCE)}\n")
