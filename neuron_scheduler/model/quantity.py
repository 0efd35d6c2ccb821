"""
Kubernetes quantities as exact integers.

Upstream: `apimachinery/pkg/api/resource/quantity.go`. Values are rounded up, as Go's `Value()` and `MilliValue()` do.
"""

import re
from functools import lru_cache

_QUANTITY = re.compile(r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:([KMGTPE]i|[numkMGTPE]?)|[eE]([+-]?[0-9]+))", re.ASCII)
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LARGEST = (1 << 63) - 1
_LARGEST_EXPONENT = 64  # beyond it and the digits every amount is 0, 1 or saturated, and 10**exponent only costs time
_MOST_CHARACTERS = 1024  # the API server writes far fewer


class QuantityError(ValueError):
    """The text is no Kubernetes quantity."""


@lru_cache(maxsize=1 << 14)
def whole(text: str) -> int:
    """Return the quantity in whole units (bytes, counts), saturated at the int64 limits. Raises QuantityError."""
    return _parse(text, 0)


@lru_cache(maxsize=1 << 14)
def milli(text: str) -> int:
    """Return the quantity in thousandths (milli-cpu), saturated at the int64 limits. Raises QuantityError."""
    return _parse(text, 3)


@lru_cache(maxsize=1 << 10)
def nano(text: str) -> int:
    """Return the quantity in billionths, saturated if its suffix is binary, as upstream does. Raises QuantityError."""
    return _parse(text, 9, _LARGEST * 10**9 if text.endswith("i") else 10**99)


def _parse(text: str, scale: int, largest: int = _LARGEST) -> int:
    parts = _QUANTITY.fullmatch(text) if len(text) <= _MOST_CHARACTERS else None
    if parts is None:
        raise QuantityError(f"{text[:64]!r} is not a quantity; write a number such as 4, 500m, 2.5 or 16Gi")
    sign, number, suffix, exponent = parts.groups()
    before, _, after = number.partition(".")
    digits = int(before + after)
    power = scale - len(after)
    factor = 1
    if exponent is not None:
        bound = _LARGEST_EXPONENT + len(number)
        power += max(-bound, min(bound, int(exponent)))
    elif suffix in _BINARY:
        factor = _BINARY[suffix]
    else:
        power += _DECIMAL[suffix]
    numerator = digits * factor * (10**power if power > 0 else 1)
    amount = min(largest, -(-numerator // 10**-power) if power < 0 else numerator)
    return -amount if sign == "-" else amount
