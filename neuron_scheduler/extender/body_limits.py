"""
How many values a request may have: two bytes of JSON can become seventy of memory.

A body of 96 MB would take more than the container has, and seconds in which nothing else runs. So a long one is read
twice: first only its outline, in which the parts are skipped and their commas counted. Whole objects are counted as
such: how many values each of them has is its own affair, since it is skipped. Does not depend on what the parts mean.
"""

from typing import Final

import msgspec
from msgspec import Raw

MOST_NODES: Final = 100_000
"""Nodes of a request; Kubernetes supports fewer."""
MOST_VICTIMS: Final = 250_000
"""Values in a request of `preempt` by uids; nodes and victims in one by whole pods."""

_PIECE: Final = 256 << 10
_NULL: Final = Raw(b"null")


class TooManyValuesError(ValueError):
    """A request has more values than one can have; the text says where."""


class _Name(msgspec.Struct, gc=False):
    name: str


class _Node(msgspec.Struct, gc=False):
    """The least that a node has, so that nothing shorter counts as one."""

    metadata: _Name


class _Nodes(msgspec.Struct):
    items: list[_Node] | None = None


class _Counted:
    """A name or a uid, of which it is only counted that it is there; all of them are one object."""


class _Uid(msgspec.Struct, gc=False):
    uid: _Counted


class _Victim(msgspec.Struct, gc=False):
    """The least that a pod has, so that nothing shorter counts as one."""

    metadata: _Uid


class _Victims(msgspec.Struct, rename="pascal"):
    pods: list[_Victim] | None = None


class _Outline(msgspec.Struct, rename="pascal"):
    """The parts of all requests."""

    pod: Raw = _NULL
    nodes: Raw = _NULL
    node_names: Raw = _NULL
    node_name_to_victims: Raw = _NULL
    node_name_to_meta_victims: Raw = _NULL


def require_few_values(text: bytes) -> None:
    """
    Refuse a request of more values than one can have.

    Raises:
        TooManyValuesError: it has more.
        ValueError: it cannot be read; also those of msgspec.
        RecursionError: likewise.
    """
    if _few_in(len(text)):
        return
    outline = msgspec.json.decode(text, type=_Outline)
    nodes = msgspec.json.decode(outline.nodes, type=_Nodes | None)
    _require_at_most(MOST_NODES, 0 if nodes is None else len(nodes.items or ()), "Nodes.items")
    if _few_in(len(text) - len(memoryview(outline.nodes)) - len(memoryview(outline.pod))):
        return
    rest = text.count(b",") - _commas(outline.nodes) - _commas(outline.pod)
    for value, most, name in (
        (outline.node_names, MOST_NODES, "NodeNames"),
        (outline.node_name_to_meta_victims, MOST_VICTIMS, "NodeNameToMetaVictims"),
    ):
        commas = _commas(value)
        _require_at_most(most, commas, name)
        rest -= commas
    _require_few_victims(outline.node_name_to_victims)
    rest -= _commas(outline.node_name_to_victims)
    _require_at_most(MOST_NODES, rest, "what is given twice, or is unknown,")  # the last of two counts above


def _require_few_victims(value: Raw) -> None:
    """Count nodes and victims while they are decoded, so that no more of them than allowed are ever in memory."""
    count, counted = 0, _Counted()

    def count_one(_kind: type[object], _text: object) -> _Counted:
        nonlocal count
        count += 1
        _require_at_most(MOST_VICTIMS, count, "NodeNameToVictims")
        return counted

    msgspec.json.decode(value, type=dict[_Counted, _Victims] | None, dec_hook=count_one)


def _require_at_most(most: int, count: int, name: str) -> None:
    if count > most:
        raise TooManyValuesError(f"{name} has more than {most} values")


def _few_in(length: int) -> bool:
    """Return whether so many bytes cannot have more values than nodes may: each takes a comma and a byte."""
    return length <= 2 * MOST_NODES


def _commas(value: Raw) -> int:
    view = memoryview(value)
    return sum(bytes(view[start : start + _PIECE]).count(b",") for start in range(0, len(view), _PIECE))
