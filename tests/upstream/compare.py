"""
Compare two releases of Kubernetes in what we stand in for: `python -m tests.upstream.compare 1.36 1.37`.

Reads the facts that `read.py` has kept, prints every difference with the file of ours that stands in for it, and exits
with 1 if one of them has no sentence in `looked_at.toml`: nobody has looked at it.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from tests.upstream import facts
from tests.upstream.facts import Facts

LOOKED_AT: Final = Path(__file__).parent / "looked_at.toml"


@attrs.frozen
class Difference:
    """An item that two releases do not have alike; a value is None in the release that does not have it."""

    section: str
    item: str
    old: str | None
    new: str | None

    @property
    def name(self) -> str:
        return f"{self.section}: {self.item}"

    def text(self) -> str:
        """Return it in words."""
        if self.old is None:
            return f"{self.name} is new{f': {self.new}' if self.new else ''}"
        if self.new is None:
            return f"{self.name} is gone{f' (was {self.old})' if self.old else ''}"
        return f"{self.name} was {self.old or 'without a value'}, is {self.new or 'without a value'}"


def differences(old: Facts, new: Facts) -> Iterator[Difference]:
    """Yield what two releases do not have alike, in the order of the sections and items."""
    for section in sorted(old.keys() | new.keys()):
        before, after = old.get(section, {}), new.get(section, {})
        for item in sorted(before.keys() | after.keys()):
            if before.get(item) != after.get(item):
                yield Difference(section, item, before.get(item), after.get(item))


def looked_at(older: str, newer: str) -> Mapping[str, str]:
    """Return the sentence about each of the differences of two releases, by name."""
    entries = tomllib.loads(LOOKED_AT.read_text()).get(f"{older} to {newer}", [])
    return {item: entry["sentence"] for entry in entries for item in entry["items"]}


def ours() -> Mapping[str, str]:
    """Return for each section the file of ours that stands in for it."""
    found: dict[str, str] = tomllib.loads(LOOKED_AT.read_text())["ours"]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the differences of two releases."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream.compare", description=__doc__)
    parser.add_argument("older", choices=facts.kept(), help="a release, such as 1.36")
    parser.add_argument("newer", choices=facts.kept(), help="a later one, such as 1.37")
    releases = parser.parse_args(arguments)
    older, newer = releases.older, releases.newer
    sentences, places, unseen = looked_at(older, newer), ours(), 0
    for difference in differences(facts.recorded(older), facts.recorded(newer)):
        sentence = sentences.get(difference.name)
        unseen += sentence is None
        sys.stdout.write(f"{difference.text()}\n    ours: {places.get(difference.section, 'nothing')}\n")
        sys.stdout.write(f"    {sentence or 'NOBODY HAS LOOKED AT THIS'}\n")
    sys.stdout.write(f"{unseen} of the differences have no sentence in tests/upstream/looked_at.toml\n")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
