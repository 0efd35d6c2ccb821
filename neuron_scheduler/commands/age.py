"""Ages as kubectl prints them (`apimachinery/pkg/util/duration`, HumanDuration)."""

from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY


_CLOCKS_DIFFER: Final = -2.0
_FORMS: Final = (
    (2 * _MINUTE, (1, "s"), (1, "s"), 0),
    (3 * _HOUR, (_MINUTE, "m"), (1, "s"), 10),
    (2 * _DAY, (_HOUR, "h"), (_MINUTE, "m"), 8),
    (2 * _YEAR, (_DAY, "d"), (_HOUR, "h"), 8),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d"), 8),
)
"""Below so many seconds: a unit, and a smaller one that is added below a number of the first."""


def age(seconds: float) -> str:
    """Return a short form of a duration: `45s`, `5m30s`, `3h12m`, `2d3h`, `3y40d`; `<invalid>` of one to come."""
    whole = int(seconds)
    if whole < 0:
        return "0s" if seconds > _CLOCKS_DIFFER else "<invalid>"
    for limit, (unit, name), (part, part_name), two_below in _FORMS:
        if whole < limit:
            count = whole // unit
            rest = whole % unit // part if count < two_below else 0
            return f"{count}{name}{rest}{part_name}" if rest else f"{count}{name}"
    return f"{whole // _YEAR}y"
