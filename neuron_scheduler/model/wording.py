"""Counts, lists, amounts and fields as people and files write them, for every text that the scheduler makes."""

import functools
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from neuron_scheduler.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY

_BINARY: Final = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_BYTES: Final = (MEMORY, EPHEMERAL_STORAGE)
_LONGEST: Final = 80
_COUNTS: Final = re.compile(r"\d+|(?<=[a-z])s\b")
_NAMES: Final = " Unknown ids: "  # the pods that are named after it change often (`scheduling.cycle.neuron_shortage`)
_ENDS: Final = re.compile(r"[,.:;]\s*")
_UNDERSCORE: Final = re.compile(r"_([a-z0-9])")


@functools.cache
def camel(name: str) -> str:
    """Return a field's name as files and JSON write it: `bindAddress` for `bind_address`."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def count_text(number: int, singular: str, plural: str = "") -> str:
    """Return `1 node` or `2 nodes`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def list_of(words: Sequence[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def few(words: Sequence[str], most: int = 3) -> str:
    """Return `a, b, c and 4 more`: the first of the words."""
    rest = len(words) - most
    return list_of([*words[:most], *([f"{rest} more"] if rest > 0 else [])])


def first_of(words: Iterable[str], most: int = 3) -> str:
    """Return `a, b, c and more`: only so many of the words are made as are needed, since each may take some time."""
    some = list(islice(words, most + 1))
    return list_of(some if len(some) <= most else [*some[:most], "more"])


def few_names(names: Sequence[str]) -> str:
    """Return the same of names from the cluster, which may be of any length."""
    return few([clip(name) for name in names])


def clip(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def span(seconds: float) -> str:
    """Return a duration for people: `45s`, `20m`."""
    return f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.0f}m"


def quantity(resource: str, amount: int) -> str:
    """Return an amount of a resource as Kubernetes writes it, without loss: `500m` of cpu, `16Gi` of memory."""
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in _BYTES or resource.startswith("hugepages-"):
        size, suffix = next(((size, suffix) for suffix, size in _BINARY if amount and not amount % size), (1, ""))
        return f"{amount // size}{suffix}"
    return str(amount)


def shape(message: str) -> tuple[str, ...]:
    """
    Return a key that is equal for messages that differ only in their numbers or in the pods that they name.

    The plural goes with the number ("1 node", "2 nodes"). The order of the reasons does not count: they are sorted as
    strings that begin with their count.
    """
    return tuple(sorted(_ENDS.split(_COUNTS.sub("", message.partition(_NAMES)[0]))))
