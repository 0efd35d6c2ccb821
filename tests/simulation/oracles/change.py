"""
The words of all oracles: a committed change, a violation, and what an oracle is.

Changes are plain values, so that a recording of a real API server can be judged like a simulated history.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs
import msgspec

Object: TypeAlias = Mapping[str, Any]
Key: TypeAlias = tuple[str, str]
"""Namespace (empty if the kind has none) and name."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


@attrs.frozen(kw_only=True)
class Change:
    """
    One committed change of an object.

    Attributes:
        at: seconds, on one clock for all changes of a history.
        version: the resource version of the change.
        type: ADDED, MODIFIED or DELETED.
        object: as it is after the change; the last state if it is gone.
        previous: as it was before the change; None if it is new.
        author: the replica that asked for the change, "" if it was somebody else, None if that is unknown.
    """

    at: float
    version: int
    type: str
    object: Object
    previous: Object | None = None
    author: str | None = None

    @property
    def kind(self) -> str:
        return str(self.object.get("kind", ""))

    @property
    def key(self) -> Key:
        return key_of(self.object)

    @property
    def uid(self) -> str:
        return uid_of(self.object)

    @property
    def after(self) -> Object | None:
        """The object as it is after the change; None if it is gone."""
        return None if self.type == DELETED else self.object


@attrs.frozen
class Violation:
    """A broken promise: when it was noticed, by which oracle, and what is wrong."""

    at: float
    oracle: str
    text: str


Report: TypeAlias = Callable[[str, str], None]
"""Takes the name of an oracle and what is wrong."""


@attrs.define(eq=False, kw_only=True)
class Oracle:
    """
    Knows one promise.

    Attributes:
        report: told what is wrong.
    """

    report: Report

    @property
    def name(self) -> str:
        """The name of the oracle in reports: that of its module."""
        return type(self).__module__.rpartition(".")[2]

    def changed(self, change: Change) -> None:
        """Look at a change that has just been committed."""

    def ended(self) -> None:
        """Look at what is left when the history is over."""

    def violated(self, text: str) -> None:
        self.report(self.name, text)


def metadata_of(obj: Object) -> Mapping[str, Any]:
    """Return the metadata."""
    metadata: Mapping[str, Any] = obj.get("metadata") or {}
    return metadata


def key_of(obj: Object) -> Key:
    """Return namespace and name."""
    metadata = metadata_of(obj)
    return str(metadata.get("namespace") or ""), str(metadata.get("name", ""))


def uid_of(obj: Object) -> str:
    return str(metadata_of(obj).get("uid", ""))


def annotations_of(obj: Object | None) -> Mapping[str, str]:
    """Return the annotations; none for no object."""
    return {} if obj is None else metadata_of(obj).get("annotations") or {}


def named(obj: Object) -> str:
    """Return how a report names an object: `namespace/name`, or the name."""
    return "/".join(part for part in key_of(obj) if part)


def recorded(events: Iterable[tuple[float, str, Object]]) -> Iterator[Change]:
    """
    Yield the changes that watches have delivered, in the order of their versions and with the state before each.

    An event is the time of its delivery, its type and its object, which names its kind. Events of several watches may
    be mixed, and one may come twice; bookmarks and errors are left out.
    """
    events = [event for event in events if event[1] in (ADDED, MODIFIED, DELETED)]
    known: dict[tuple[str, Key], Object] = {}
    last: dict[tuple[str, Key], int] = {}
    for at, kind, obj in sorted(events, key=lambda event: version_of(event[2])):
        place, version = (str(obj.get("kind", "")), key_of(obj)), version_of(obj)
        if version <= last.get(place, -1):
            continue
        last[place] = version
        previous = known.pop(place, None)
        if previous is not None and uid_of(previous) != uid_of(obj):
            previous = None
        if kind != DELETED:
            known[place] = obj
        elif previous is None:
            continue
        yield Change(at=at, version=version, type=ADDED if previous is None else kind, object=obj, previous=previous)


def version_of(obj: Object) -> int:
    """Return the resource version as a number, 0 if there is none."""
    text = str(metadata_of(obj).get("resourceVersion") or "0")
    return int(text) if text.isdecimal() else 0


def encoded(obj: Object) -> bytes:
    """
    Return the JSON of an object without managedFields, which no rule reads.

    They may be nested so deeply that a decoder fails, and here an oracle would fail with the decoder that it judges.
    """
    metadata = {field: value for field, value in obj["metadata"].items() if field != "managedFields"}
    return msgspec.json.encode({**obj, "metadata": metadata})
