"""
Makes a failing scenario small: names its parts, leaves some out, and finds the fewest with which it still fails.

`d3` is the third deed, `f1` the first fault, `n2` the second node, and `r2` the second replica; a person writes
`d0-d3,f2` for `d0,d1,d2,d3,f2`. The search is Zeller's ddmin: halves first, then smaller shares, at last single parts.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import attrs

from tests.simulation.scenario import Scenario

_RANGE: Final = re.compile(r"([a-z])(\d{1,6})(?:-(?:\1)?(\d{1,6}))?")


def expanded(text: str) -> tuple[str, ...]:
    """
    Return the names in a text.

    Raises:
        ValueError: the text is not a list of names.
    """
    return tuple(name for word in text.split(",") if word for name in _names(word))


def compact(names: Collection[str]) -> str:
    """Return names as a short text, in alphabetical and numerical order."""
    ordered = sorted((name[0], int(name[1:])) for name in names)
    runs: list[tuple[str, int, int]] = []
    for letter, number in ordered:
        if runs and runs[-1][0] == letter and runs[-1][2] == number - 1:
            runs[-1] = (letter, runs[-1][1], number)
        else:
            runs.append((letter, number, number))
    return ",".join(f"{x}{first}" if first == last else f"{x}{first}-{x}{last}" for x, first, last in runs)


def _names(word: str) -> Iterator[str]:
    found = _RANGE.fullmatch(word)
    if found is None:
        raise ValueError(f"{word!r} is no part of a scenario; write such as f0,d3-d7,r1,n2")
    first = int(found[2])
    yield from (f"{found[1]}{number}" for number in range(first, int(found[3] or first) + 1))


T = TypeVar("T")


def parts_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of all parts that can be left out; one replica and one node stay."""
    return (
        *(f"f{number}" for number in range(1, len(scenario.faults) + 1)),
        *(f"d{number}" for number in range(1, len(scenario.deeds) + 1)),
        *(f"r{number}" for number in range(2, scenario.replicas + 1)),
        *(f"n{number}" for number in range(2, len(scenario.nodes) + 1)),
    )


def listed(scenario: Scenario, left_out: Collection[str] = ()) -> str:
    """Return a text with everything that is left of a scenario, each part with its name."""
    fence = "with" if scenario.fenced else "without"
    lease = ", ".join(f"{seconds:g}" for seconds in scenario.lease)
    replicas = scenario.replicas - sum(part.startswith("r") for part in left_out)
    head = (
        f"seed {scenario.seed}: {replicas} replicas, {scenario.api_servers} API servers {fence} the "
        f"fence, Lease {lease} s, quiet from {scenario.quiet_at:g} s, ends at {scenario.ends_at:g} s"
    )
    parts = (f"  {name:>4} {text}" for name, text in _named(scenario) if name not in left_out)
    return "\n".join((head, *parts))


def _named(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for number, node in enumerate(scenario.nodes, start=1):
        yield f"n{number}", " ".join(node)
    for number, deed in enumerate(scenario.deeds, start=1):
        yield f"d{number}", f"{deed.at:.3f} s: {deed}"
    for number, fault in enumerate(scenario.faults, start=1):
        yield f"f{number}", str(fault)


def without(scenario: Scenario, parts: Collection[str]) -> Scenario:
    """
    Return the scenario without some of its parts.

    Raises:
        ValueError: it has no such part.
    """
    unknown = sorted(set(parts) - set(parts_of(scenario)))
    if unknown:
        raise ValueError(f"the scenario of seed {scenario.seed} has no {', '.join(unknown)}")
    return attrs.evolve(
        scenario,
        faults=_rest("f", scenario.faults, parts),
        deeds=_rest("d", scenario.deeds, parts),
        nodes=_rest("n", scenario.nodes, parts),
        replicas=scenario.replicas - sum(part.startswith("r") for part in parts),
    )


def _rest(letter: str, values: Sequence[T], parts: Collection[str]) -> tuple[T, ...]:
    return tuple(value for number, value in enumerate(values, start=1) if f"{letter}{number}" not in parts)


Fails = Callable[[Sequence[tuple[str, ...]]], Sequence[bool]]
"""Returns for each of some tuples of parts whether the scenario still fails without them."""

MOST_TRIES: Final = 400


def smallest(parts: Sequence[str], fails: Fails, *, at_once: int = 1, most_tries: int = MOST_TRIES) -> tuple[str, ...]:
    """
    Return which of the parts can be left out together; without one more of them, the scenario does not fail.

    `at_once` candidates are tried at the same time. After about `most_tries` it returns what it has by then.
    """
    kept, left_out, shares, tries = list(parts), list[str](), 1, 0
    while kept and tries < most_tries:
        shares = min(shares, len(kept))
        found: tuple[str, ...] = ()
        for group in _groups(list(_shares(kept, shares)), at_once):
            tries += len(group)
            failing = fails([(*left_out, *share) for share in group])
            found = next((share for share, failed in zip(group, failing, strict=True) if failed), ())
            if found:
                break
        if found:
            left_out += found
            kept = [part for part in kept if part not in found]
            shares = max(2, shares - 1)
        elif shares == len(kept):
            break
        else:
            shares *= 2
    return tuple(left_out)


def _shares(parts: Sequence[str], count: int) -> Iterator[tuple[str, ...]]:
    """Yield the parts in so many shares of about equal size."""
    bounds = [len(parts) * number // count for number in range(count + 1)]
    for start, end in pairwise(bounds):
        yield tuple(parts[start:end])


def _groups(shares: Sequence[tuple[str, ...]], size: int) -> Iterator[Sequence[tuple[str, ...]]]:
    for start in range(0, len(shares), size):
        yield shares[start : start + size]
