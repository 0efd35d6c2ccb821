"""Quantities are read exactly as apimachinery v0.36.2 reads them (the table's amounts are its own)."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.model.quantity import QuantityError, milli, nano, whole

LARGEST = (1 << 63) - 1
SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(1 << 10),
    "Mi": Fraction(1 << 20),
    "Gi": Fraction(1 << 30),
    "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50),
    "Ei": Fraction(1 << 60),
}


@pytest.mark.parametrize(
    ("text", "want", "want_milli"),
    [
        ("0", 0, 0),
        ("4", 4, 4_000),
        ("+4", 4, 4_000),
        ("-4", -4, -4_000),
        ("4.", 4, 4_000),
        (".5", 1, 500),
        ("-0.5", -1, -500),
        ("-1.5", -2, -1_500),
        ("500m", 1, 500),
        ("1500m", 2, 1_500),
        ("0.1m", 1, 1),
        ("100n", 1, 1),
        ("1u", 1, 1),
        ("1e3", 1_000, 1_000_000),
        ("1E3", 1_000, 1_000_000),
        ("1e+2", 100, 100_000),
        ("1e-3", 1, 1),
        ("1e-1", 1, 100),
        ("1Ki", 1_024, 1_024_000),
        ("1.5Ki", 1_536, 1_536_000),
        ("0.5Mi", 524_288, 524_288_000),
        ("16Gi", 17_179_869_184, 17_179_869_184_000),
        ("1E", 10**18, LARGEST),
        ("007", 7, 7_000),
    ],
)
def test_quantities_are_read(text: str, want: int, want_milli: int) -> None:
    """Every spelling that the API server accepts has its amount, rounded away from zero."""
    assert (whole(text), milli(text)) == (want, want_milli)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "+", "-", ".", "--1", "1.1.1", "1,5", "0x10", "five"),
        *("1K", "1ki", "1MI", "1mi", "1i", "1Kib", "1GiB", "5m5", "1e", "1e+", "1e1.5", "1e1e1", "1e3Ki"),
        *("1_000", "1 Gi", " 1", "1 ", "1Gi ", "1\n", "NaN", "Infinity", "inf", "\u0661", "1\u0662", "1\u00b2"),
        pytest.param("9" * 5_000, id="a novel"),
        pytest.param("1e" + "9" * 5_000, id="a novel of an exponent"),
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """Nothing is guessed: blanks, underscores, foreign digits, unknown suffixes and very long texts are errors."""
    for read in (whole, milli):
        with pytest.raises(QuantityError, match="is not a quantity"):
            read(text)


@pytest.mark.parametrize(
    "text",
    ["9223372036854775808", "8Ei", "10E", "1e19", "1e64", "1e999999999", pytest.param("9" * 300, id="300 digits")],
)
def test_what_is_too_large_saturates(text: str) -> None:
    """An amount beyond int64 is the largest int64, never a small number by overflow, and costs no time."""
    assert (whole(text), milli(text)) == (LARGEST, LARGEST)
    assert (whole(f"-{text}"), milli(f"-{text}")) == (-LARGEST, -LARGEST)


@pytest.mark.parametrize("text", ["1e-65", "1e-999999999", pytest.param("0." + "0" * 300 + "1", id="300 places")])
def test_what_is_too_small_is_one(text: str) -> None:
    """A small amount is rounded up, never to nothing."""
    assert (whole(text), milli(text), whole(f"-{text}")) == (1, 1, -1)


numbers = st.one_of(
    st.from_regex(r"[+-]?[0-9]{1,25}(\.[0-9]{0,25})?", fullmatch=True),
    st.from_regex(r"[+-]?\.[0-9]{1,25}", fullmatch=True),
)


def exactly(number: Fraction, scale: int) -> int:
    """Return the amount by the definition: scaled, rounded away from zero, cut at int64."""
    size = min(LARGEST, math.ceil(abs(number) * scale))
    return -size if number < 0 else size


@given(number=numbers, suffix=st.sampled_from(sorted(SUFFIXES)))
def test_suffixes_are_exact(number: str, suffix: str) -> None:
    """Every number with every suffix agrees with exact fractions."""
    value = Fraction(number) * SUFFIXES[suffix]
    assert (whole(number + suffix), milli(number + suffix)) == (exactly(value, 1), exactly(value, 1000))


@given(number=numbers, letter=st.sampled_from("eE"), exponent=st.integers(-120, 120))
def test_exponents_are_exact(number: str, letter: str, exponent: int) -> None:
    """Every number with every decimal exponent agrees with exact fractions, however many digits it has."""
    value = Fraction(number) * Fraction(10) ** exponent
    text = f"{number}{letter}{exponent}"
    assert (whole(text), milli(text)) == (exactly(value, 1), exactly(value, 1000))


@pytest.mark.parametrize(
    ("text", "want"),
    [("1n", 1), ("0.1n", 1), ("1.5m", 1_500_000), ("-1", -(10**9)), ("16Ei", LARGEST * 10**9), ("16E", 16 * 10**27)],
)
def test_billionths(text: str, want: int) -> None:
    """Selectors compare quantities as exactly as upstream keeps them."""
    assert nano(text) == want
