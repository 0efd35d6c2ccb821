"""A refusal waits a moment, and only as often as kube-scheduler does not notice."""

import attrs

from neuron_scheduler.extender.second_look import A_SECOND, BURST, WAIT, SecondLook


@attrs.define(eq=False)
class Waits:
    """A clock that a test sets, and the waits so far."""

    now: float = 0.0
    seconds: list[float] = attrs.field(factory=list)

    async def sleep(self, seconds: float) -> None:
        """Remember a wait, which takes its time."""
        self.seconds.append(seconds)
        self.now += seconds


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
