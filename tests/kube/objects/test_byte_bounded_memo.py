"""Results of a function are kept, up to a number of bytes."""

import attrs
from hypothesis import given, strategies as st

from neuron_scheduler.kube.objects.byte_bounded_memo import OBJECT, byte_bounded_memo, weight_of


@attrs.frozen
class Pair:
    """A value with parts."""

    names: tuple[str, ...]
    number: int


def test_it_is_computed_once() -> None:
    """The same object is returned again."""
    calls: list[str] = []

    @byte_bounded_memo()
    def doubled(text: str) -> str:
        calls.append(text)
        return text * 2

    assert doubled("ab") is doubled("ab")
    assert calls == ["ab"]


def test_what_is_large_is_not_kept() -> None:
    """A spec of a megabyte is read each time."""
    calls: list[int] = []

    @byte_bounded_memo(most=10_000, longest=1000)
    def counted(text: str) -> None:
        calls.append(len(text))

    for _ in range(3):
        counted("x" * 1000)

    assert calls == [1000] * 3


@given(st.lists(st.text(max_size=300)))
def test_all_together_are_bounded(texts: list[str]) -> None:
    """Whatever the arguments and their order."""
    most = 2000
    results = byte_bounded_memo(most=most, longest=400)(str.lower)
    for text in texts:
        assert results(text) == text.lower()
    kept = results.__self__  # type: ignore[attr-defined]  # the cache behind it

    assert sum(OBJECT + len(text) for text in {*kept, *kept._old}) <= most


def test_what_is_used_stays() -> None:
    """A result that is used moves to the new generation."""
    calls: list[str] = []
    counted = byte_bounded_memo(most=20 * OBJECT)(calls.append)
    for number in range(100):
        counted("used")
        counted(str(number))

    assert calls.count("used") == 1


def test_the_weight_of_a_value() -> None:
    """Strings count with their length, at any depth, and counting stops at the limit."""
    assert weight_of(Pair(("a" * 100, "b" * 50), 7), 10_000) >= 150 + 5 * OBJECT
    assert weight_of(("x" * 1000, "y" * 1000), 500) < 2000
