"""
The parameters of a question's query, strictly: a name that is not known, or that is there twice, is an error.

Does not depend on what they mean.
"""

from collections.abc import Collection
from urllib.parse import parse_qsl

from neuron_scheduler.errors import NeuronSchedulerError

_MOST: int = 64


class AskedWronglyError(NeuronSchedulerError):
    """A question that cannot be answered as it is; the text says what to change."""


def parameters(query: str, known: Collection[str]) -> dict[str, str]:
    """
    Return the values by name.

    Raises:
        AskedWronglyError: a name is unknown or repeated, or there are too many.
    """
    try:
        pairs = parse_qsl(
            query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=_MOST, errors="strict"
        )
    except ValueError as error:
        raise AskedWronglyError(f"the query cannot be read: {error}") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise AskedWronglyError(f"there is no parameter {name!r}; there {_are(known)}")
        if name in values:
            raise AskedWronglyError(f"the parameter {name!r} is there twice")
        values[name] = value
    return values


def number(values: dict[str, str], name: str, *, most: int, otherwise: int = 0) -> int:
    """
    Return a parameter as a count from 0 to `most`.

    Raises:
        AskedWronglyError: it is something else.
    """
    text = values.get(name, "")
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= most):
        raise AskedWronglyError(f"{name}={text[:20]} is no number from 0 to {most}")
    return int(text)


def _are(known: Collection[str]) -> str:
    return f"are {', '.join(sorted(known))}" if len(known) > 1 else f"is {next(iter(known), 'none here')}"
