"""
Makes a failing scenario small: leaves out parts as long as the same oracle fails.

Zeller's ddmin: halves first, then smaller shares, at last single parts. Refuses to run anything itself.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final

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
