"""
All mutants: those of a room are in the `.txt` file of its name, sorted by the first file that they change.

A mutant is a paragraph. It begins with its name; then come its attributes, and its edits as in a diff:

    released-in-doubt
    broken: that the Lease expires when a Binding is in doubt
    danger: the successor decides before the Binding is committed
    where: terminated; request late.*bindings
    seed: 71 cores nodes_that_fit
    file: neuron_scheduler/app.py
    - await election.leave(release=binder.resolved)
    + await election.leave(release=True)

What a test notices has `test: NODE_ID` there, and `plane: yes` if the test needs a control plane. A new mutant for the
simulation begins with `seed: 0`; `--find` looks for a better one.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Edit, Mutant

FOLDER: Final = Path(__file__).parent


def named(name: str) -> Mutant:
    """
    Return a mutant.

    Raises:
        KeyError: there is none of that name.
    """
    for mutant in MUTANTS:
        if mutant.name == name:
            return mutant
    raise KeyError(f"there is no mutant {name!r}; `python -m tests.mutants --list` lists them")


def record(name: str, seed: int, oracles: Sequence[str]) -> None:
    """Write the seed that catches a mutant into its file."""
    for path in FOLDER.glob("*.txt"):
        found = re.sub(
            rf"(?m)^({name}\n(?:.+\n)*?seed:).*", rf"\g<1> {' '.join([str(seed), *oracles])}", path.read_text()
        )
        path.write_text(found)


def _read(paragraph: str) -> Mutant:
    name, *lines = paragraph.splitlines()
    fields: dict[str, str] = {}
    edits: list[tuple[str, list[str]]] = []
    for line in lines:
        key, _, value = line.partition(": ")
        if line[0] in " -+":
            edits[-1][1].append(line)
        elif key == "file":
            edits.append((value, []))
        else:
            fields[key] = value
    seed = fields.pop("seed", "").split()
    mutant = Mutant(
        name=name,
        broken=fields.pop("broken"),
        danger=fields.pop("danger", ""),
        tests=_listed(fields.pop("test", "")),
        plane=fields.pop("plane", "") == "yes",
        seed=int(seed[0]) if seed else None,
        oracles=seed[1:],
        where=_listed(fields.pop("where", "")),
        edits=[Edit(file, _side(" -", diff), _side(" +", diff)) for file, diff in edits],
    )
    if fields:
        raise ValueError(f"mutant {name} has attributes that there are not: {', '.join(fields)}")
    return mutant


def _listed(text: str) -> Sequence[str]:
    return text.split("; ") if text else ()


def _side(marks: str, diff: Sequence[str]) -> Sequence[str]:
    return [line[2:] for line in diff if line[0] in marks]


MUTANTS: Final = [
    _read(paragraph) for path in sorted(FOLDER.glob("*.txt")) for paragraph in path.read_text().strip().split("\n\n")
]
