"""A refusal waits a moment, and only as often as kube-scheduler does not notice."""

import attrs
import pytest

from neuron_scheduler.extender.second_look import A_SECOND, BURST, LONGER, LONGER_BURST, WAIT, SecondLook


@attrs.define(eq=False)
class Waits:
    """A clock that a test sets, and the waits so far."""

    now: float = 0.0
    slower: int = 1
    seconds: list[float] = attrs.field(factory=list)

    async def sleep(self, seconds: float) -> None:
        """Remember a wait, which takes its time."""
        self.seconds.append(seconds)
        self.now += seconds * self.slower


def second_look(waits: Waits) -> SecondLook:
    """Return one with the clock of a test."""
    return SecondLook(clock=lambda: waits.now, sleep=waits.sleep)


async def test_a_few_in_a_row() -> None:
    """Each of some refusals waits; the next one does not, and says so."""
    waits = Waits()
    look = second_look(waits)
    assert [await look.is_due() for _ in range(int(BURST) + 1)] == [True] * int(BURST) + [False]
    assert waits.seconds == [WAIT] * int(BURST)
    waits.now += 1 / A_SECOND
    assert await look.is_due()


async def test_of_kube_schedulers_time_little_is_taken() -> None:
    """However many pods are refused, the waits are a small part of an hour."""
    waits = Waits()
    look = second_look(waits)
    while waits.now < 3600:
        await look.is_due()
        waits.now += 0.01
    assert sum(waits.seconds) <= WAIT * (BURST + 3600 * A_SECOND) + WAIT


async def test_a_change_is_waited_for_longer() -> None:
    """The wait ends with the change, or after a second."""
    waits = Waits()
    look = second_look(waits)
    assert await look.until(lambda: waits.now >= 6.5 * WAIT)
    assert waits.seconds == [WAIT] * 7
    waits.seconds.clear()
    assert not await look.until(lambda: False)
    assert sum(waits.seconds) == pytest.approx(LONGER)


async def test_slow_waits_are_not_more_than_a_second() -> None:
    """On a busy machine each wait takes longer than it should; then there are fewer of them."""
    waits = Waits(slower=4)
    assert not await second_look(waits).until(lambda: False)
    assert len(waits.seconds) == round(LONGER / WAIT / 4)


async def test_of_longer_waits_there_are_not_more() -> None:
    """However often a change does not come, the waits are a small part of an hour; the shorter ones are not fewer."""
    waits = Waits()
    look = second_look(waits)
    while waits.now < 3600:
        await look.until(lambda: False)
        waits.now += 0.01
    assert sum(waits.seconds) <= WAIT * (LONGER_BURST + 3600 * A_SECOND) + 2 * LONGER
    assert await look.is_due()
