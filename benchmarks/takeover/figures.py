"""
The figures of failover rounds, the bounds that they must keep, and the table that says whether they do.

Values and text only. Refuses to measure.
"""

import statistics
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

CLEAN: Final = 1.0  # seconds after a clean stop
BEYOND_LEASE: Final = 2.0  # seconds after a crash, beyond the duration of the Lease


@attrs.frozen(kw_only=True)
class LeaseTimes:
    """The times of leader election, in seconds."""

    duration: float
    deadline: float
    retry: float

    @property
    def flags(self) -> tuple[str, ...]:
        """The scheduler's flags."""
        return (
            f"--leader-elect-lease-duration={self.duration:g}s",
            f"--leader-elect-renew-deadline={self.deadline:g}s",
            f"--leader-elect-retry-period={self.retry * 1000:.0f}ms",
        )

    def __str__(self) -> str:
        """Return the three times as the documentation writes them."""
        return f"{self.duration:g}/{self.deadline:g}/{self.retry:g}"


DEFAULT: Final = LeaseTimes(duration=15, deadline=10, retry=2)
SHORT: Final = LeaseTimes(duration=5, deadline=3, retry=0.5)


@attrs.frozen(kw_only=True)
class Round:
    """
    What one round has shown.

    Attributes:
        deed: the name of what was done to the leader.
        takeover: seconds from the deed to the successor's first Binding; of a rolling update the longest time without
            a Binding while a pod waited.
        pods: how many were created.
        bound: how many of them were bound in the end.
        wrong: what must not happen, a sentence each.
    """

    deed: str
    times: LeaseTimes
    takeover: float
    pods: int
    bound: int
    wrong: tuple[str, ...] = ()

    @property
    def bound_in(self) -> float:
        """The seconds that `takeover` may have."""
        return CLEAN if self.deed in ("clean stop", "rolling update") else self.times.duration + BEYOND_LEASE

    @property
    def holds(self) -> bool:
        """Whether the bound is kept, no pod is lost, and nothing went wrong."""
        return self.takeover <= self.bound_in and self.bound == self.pods and not self.wrong


HEAD: Final = ("what", "lease times", "rounds", "median", "worst", "bound", "pods lost", "bound twice", "holds")


def table(rounds: Iterable[Round]) -> str:
    """Return a Markdown table, a line for each deed with each lease times."""
    groups: dict[tuple[str, str], list[Round]] = {}
    for each in rounds:
        groups.setdefault((each.deed, str(each.times)), []).append(each)
    rows = [HEAD, *(_row(group) for group in groups.values())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "| " + " | ".join("-" * width for width in widths) + " |")
    return "\n".join(lines)


def _row(group: Sequence[Round]) -> tuple[str, ...]:
    seconds = [each.takeover for each in group]
    first = group[0]
    return (
        first.deed,
        str(first.times),
        str(len(group)),
        f"{statistics.median(seconds):.2f} s",
        f"{max(seconds):.2f} s",
        f"{first.bound_in:g} s",
        str(sum(each.pods - each.bound for each in group)),
        str(sum(len(each.wrong) for each in group)),
        "yes" if all(each.holds for each in group) else "NO",
    )
