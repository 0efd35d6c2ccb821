"""
Read the lines of a watch that cannot be decoded at once: bookmarks, errors, and objects that are hard to read.

Reads in steps, and only as deep as necessary, so that a bad object affects no other. A line that cannot be read at all
is a dead end: the next watch from the same version would deliver it again.
"""

from typing import Final, TypeVar

import msgspec

from neuron_scheduler.errors import ApiError, OversizedLineError, UnreachableError
from neuron_scheduler.kube.http.status import status_error
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Decoded, Decoder
from neuron_scheduler.kube.objects.json_scanner import ScanError, finish_with_pauses, members

T = TypeVar("T")

BOOKMARK: Final = "BOOKMARK"
_ABOUT_OBJECTS: Final = ("ADDED", "MODIFIED", "DELETED")
_EVENT: Final = msgspec.json.Decoder(wire.Event)
_BOOKMARK: Final = msgspec.json.Decoder(wire.Versioned)
_STATUS: Final = msgspec.json.Decoder(wire.Status)


class DeadEndError(UnreachableError):
    """A watch cannot continue from its version: only a list helps."""


def is_dead_end(error: ApiError | UnreachableError) -> bool:
    """
    Return whether only a list helps: the version is too old, from the future, or leads to an unreadable line.

    client-go lists after any refusal but 429. A list is the most expensive request for an overloaded server, so
    after other errors we list only when several watches in a row have failed.
    """
    if isinstance(error, UnreachableError):
        return isinstance(error, DeadEndError)
    if error.status == 504:
        return "too large resource version" in error.message.lower()
    return 400 <= error.status < 500 and error.status not in (401, 403, 429)


def may_follow(version: str, known: str) -> bool:
    """
    Return whether an event or bookmark may have a version, after a known one.

    Versions of a watch are decimal numbers that grow; one that comes twice does no harm. Otherwise a proxy has damaged
    the version, or the one before: a watch from it would show what was long ago, or nothing.
    """
    if not known.isdigit():
        return True  # not of etcd: their order is not known
    return version.isdigit() and (len(version), version) >= (len(known), known)


async def decode_line_in_steps(decoder: Decoder[T], line: bytes) -> tuple[str, Decoded[T]] | None:
    """
    Return the type of an event with its object, or a BOOKMARK with only a version; None for a blank line.

    Raises:
        ApiError: the server asks us to wait (429).
        DeadEndError: the line is another error, cannot be read, or was damaged on its way: the object would stay as it
            was read before, or unreadable, until its next change.
        UnreachableError: the line was cut off.
    """
    if not line.endswith(b"\n"):
        raise UnreachableError("the last line of the watch was cut off")
    if not line.strip():
        return None  # some proxies send it to keep a connection alive
    event_type, obj = await _split(line)
    if event_type in _ABOUT_OBJECTS:
        decoded = _named(await finish_with_pauses(decoder.decode_in_steps(obj)))
        if decoded.damaged:
            raise DeadEndError(f"the object {decoded.key} of an event was damaged on its way")
        return event_type, decoded
    try:
        if event_type == BOOKMARK:
            return event_type, Decoded("", "", _BOOKMARK.decode(obj).metadata.resource_version, None)
        error = status_error(_STATUS.decode(obj))
    except Exception as cause:
        raise DeadEndError(f"{event_type[:20]} event cannot be read: {cause}") from cause
    if error.status == 429:
        raise error
    raise DeadEndError(f"{event_type[:20]} event: {error}")


async def decode_beginning(decoder: Decoder[T], error: OversizedLineError) -> tuple[str, Decoded[T]]:
    """Return the type of an event, and a malformed object, for a line of which only the beginning was kept."""
    envelope, _, obj = error.beginning.partition(b'"object"')
    decoded = _named(await finish_with_pauses(decoder.malformed(obj, error)))
    return "DELETED" if b'"DELETED"' in envelope else "MODIFIED", decoded


def _named(decoded: Decoded[T]) -> Decoded[T]:
    """Return the object if its name is known; otherwise only a list helps."""
    if not decoded.key:
        raise DeadEndError("the object of an event cannot be read, not even its name")
    return decoded


async def _split(line: bytes) -> tuple[str, bytes | msgspec.Raw]:
    """Return the type and the object of a line, even if the object is too deep to be skipped."""
    try:
        event = _EVENT.decode(line)
    except Exception:  # noqa: BLE001 - RecursionError, or a line that is not JSON
        try:
            parts = {member.name: line[member.start : member.end] for member in await finish_with_pauses(members(line))}
            return msgspec.json.decode(parts[b'"type"'], type=str), parts[b'"object"']
        except (ScanError, KeyError, ValueError) as error:
            raise DeadEndError(f"line of the watch cannot be read: {error!r}") from error
    return event.type, event.object
