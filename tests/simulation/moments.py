"""
When things happen in a scenario: all before the quiet, often close together.

Refuses to know what happens.
"""

from random import Random


def moment(dice: Random, first: float, quiet_at: float, *, before: float = 0.5) -> float:
    """Return a moment from the first one on that is so many seconds before the quiet."""
    return round(dice.uniform(first, max(quiet_at - before, first)), 3)


def pair(dice: Random, quiet_at: float) -> tuple[float, float]:
    """Return two moments, the second soon after the first."""
    first = moment(dice, 1, quiet_at, before=2)
    return first, round(min(first + dice.choice((0.01, 0.5, 3.0, 10.0)), quiet_at - 0.5), 3)


def after(dice: Random, at: float, quiet_at: float) -> float:
    """Return a moment after another one: at once, while a pod is being bound, or much later."""
    wait = dice.choice((dice.uniform(0, 0.05), dice.uniform(0, 2.0), dice.uniform(2, 30)))
    return round(min(at + wait, quiet_at - 0.5), 3)
