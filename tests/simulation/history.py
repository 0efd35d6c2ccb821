"""
What happened in a simulation, in its order: a story for people, and a digest by which two runs are compared.

Each line has the virtual time, who, and what. Texts are as they were; `printed` shortens ids as far as they stay
different from one another. Refuses to judge: oracles do, and hand their findings in here.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from tests.simulation.oracles.change import Change, Violation
from tests.simulation.story import printable, told

MOST_LINES: Final = 200_000
"""Later lines are in the digest only, so that a history that runs away takes no more memory."""
_UUID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_SHORTEST: Final = 4
STORE: Final = "store"


@attrs.frozen
class Line:
    """One line of the story."""

    at: float
    source: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:11.6f} {self.source:<12} {self.text}"


@attrs.define(eq=False)
class History:
    """
    The story so far.

    Attributes:
        clock: virtual seconds since the start.
        violations: what the oracles have found.
        faults: how often a fault of each kind has struck.
        changes: how many changes of objects of each kind were committed.
        requests: how many requests each replica has sent.
        on_log: called with the name of a replica and each line of its log.
        on_request: called with the name of a replica and the outcome of each of its requests.
    """

    clock: Callable[[], float]
    most_lines: int = MOST_LINES
    violations: list[Violation] = attrs.field(factory=list, init=False)
    faults: Counter[str] = attrs.field(factory=Counter, init=False)
    changes: Counter[str] = attrs.field(factory=Counter, init=False)
    requests: Counter[str] = attrs.field(factory=Counter, init=False)
    on_log: Callable[[str, str], None] = attrs.field(default=lambda _replica, _line: None, init=False)
    on_request: Callable[[str, str], None] = attrs.field(default=lambda _replica, _outcome: None, init=False)
    lines: list[Line] = attrs.field(factory=list, init=False)
    left_out: int = attrs.field(default=0, init=False)
    _hash: "hashlib._Hash" = attrs.field(factory=lambda: hashlib.sha256(), init=False)  # noqa: PLW0108 - typed

    def line(self, source: str, text: str) -> None:
        """Add a line."""
        line = Line(self.clock(), source, printable(text))
        self._hash.update(f"{line}\n".encode(errors="surrogatepass"))
        if len(self.lines) < self.most_lines:
            self.lines.append(line)
        else:
            self.left_out += 1

    def committed(self, change: Change) -> None:
        """Add what a committed change says."""
        self.changes[change.kind] += 1
        author = f" [{change.author}]" if change.author else ""
        self.line(STORE, f"v{change.version} {told(change)}{author}")

    def request(self, replica: str, method: str, path: str, outcome: str) -> None:
        """Add a request with its status, or how it ended."""
        self.requests[replica] += 1
        self.on_request(replica, outcome)
        self.line(replica, f"{method} {path} -> {outcome}")

    def struck(self, kind: str, text: str = "") -> None:
        """Count a fault that has struck, and say what it did."""
        self.faults[kind] += 1
        self.line("fault", f"{kind}: {text}" if text else kind)

    def log(self, replica: str, line: str) -> None:
        """Add a line of a replica's log."""
        self.line(replica, f"log: {line.rstrip()}")
        self.on_log(replica, line)

    def violation(self, oracle: str, text: str) -> None:
        """Add what an oracle has found."""
        self.violations.append(Violation(self.clock(), oracle, printable(text)))
        self.line("VIOLATION", f"{oracle}: {text}")

    def digest(self) -> str:
        """Return a digest of all lines, also of those that were not kept."""
        return self._hash.hexdigest()

    def printed(self) -> str:
        """Return the story: one line each, with ids as short as they can be."""
        lines = [str(line) for line in self.lines]
        if self.left_out:
            lines.append(f"... {self.left_out:,} more lines")
        short = _shortened(found for line in lines for found in _UUID.findall(line))
        return "".join(_UUID.sub(lambda match: short[match[0]], line) + "\n" for line in lines)


def _shortened(uuids: Iterable[str]) -> dict[str, str]:
    """Return for each id its shortest start that no other one has."""
    ordered = sorted(set(uuids))
    return {
        this: this[: max(_SHORTEST, _common(this, before) + 1, _common(this, after) + 1)]
        for before, this, after in _neighbours(ordered)
    }


def _neighbours(ordered: list[str]) -> Iterator[tuple[str, str, str]]:
    yield from zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False)


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
