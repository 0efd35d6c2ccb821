"""Ages are kubectl's: those of the sandbox, which are written independently."""

from datetime import timedelta

import pytest

from neuron_scheduler.commands.age import age
from neuron_scheduler.sandbox.apiserver.columns import human_duration


@pytest.mark.parametrize("seconds", [*range(0, 700, 7), *range(700, 40_000, 601), *range(40_000, 60_000_000, 400_009)])
def test_up_to_two_years(seconds: int) -> None:
    """Seconds, minutes, hours and days, with a smaller unit where the number is small."""
    assert age(seconds + 0.9) == human_duration(timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(-1.5, "0s"), (-60, "<invalid>"), (3 * 365 * 86400 + 40 * 86400, "3y40d"), (9 * 365 * 86400 + 86400, "9y")],
)
def test_the_ends(seconds: float, want: str) -> None:
    """A clock that is a little late, a time to come, and years (`HumanDuration` of apimachinery)."""
    assert age(seconds) == want
