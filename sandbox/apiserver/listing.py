"""
Lists: selection, pages that stay consistent while the table changes, and the meanings of a resourceVersion.

A page token carries the version where the list began; later pages are read from the log as the table was then, and
are refused with 410 once the log no longer reaches back.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Protocol

import attrs
import msgspec

from sandbox.apiserver import selectors
from sandbox.apiserver.resources import Resource
from sandbox.apiserver.status import (
    StatusError,
    bad_request,
    expired,
    expired_continue,
    forbidden_value,
    from_the_future,
    invalid,
)
from sandbox.apiserver.store import Change, Expired, Object, key_of


class Readable(Protocol):
    """The part of a `Store` that is read; the same contract."""

    @property
    def version(self) -> int:
        """The version of the last change that can be read."""

    def objects(self, table: str, namespace: str | None = None, *, at: int | None = None) -> list[Object]:
        """Return the objects in key order, as they are or as they were at a version. Raises `Expired`."""

    def position(self, table: str, version: int) -> int:
        """Return the position in the log after a version. Raises `Expired`."""

    def after(self, table: str, position: int) -> list[Change]:
        """Return the changes from a position on. Raises `Expired`."""

    async def changed(self, table: str = "") -> None:
        """Wait for the next change of a table, or of any."""


@attrs.frozen
class Page:
    """One page of a list: the objects, the version of the whole list, and how to go on."""

    objects: list[Object]
    version: int
    next_token: str = ""

    def metadata(self) -> dict[str, object]:
        """Return the `metadata` of the list object."""
        shown: dict[str, object] = {"resourceVersion": str(self.version)}
        if self.next_token:
            shown["continue"] = self.next_token
        return shown


def version_of(query: Mapping[str, str]) -> int | None:
    """Return the resourceVersion of a query as a number; None if it is unset. 400 if it is not a number."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise bad_request(f'invalid resource version "{text}": strconv.ParseUint: invalid syntax')
    return int(text)


def predicate_of(resource: Resource, query: Mapping[str, str]) -> selectors.Predicate:
    """Return the selectors of a query."""
    return selectors.parse(resource, labels=query.get("labelSelector", ""), fields=query.get("fieldSelector", ""))


def read(store: Readable, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> Page:
    """
    Return the page that a list request asks for.

    Raises:
        StatusError: 400, 410 for an expired page or exact version, 422, 504 for a version of the future.
    """
    holds = predicate_of(resource, query)
    asked, match = version_of(query), query.get("resourceVersionMatch", "")
    limit, token = int(query.get("limit") or 0), query.get("continue", "")
    if match and asked is None:
        problem = forbidden_value("resourceVersionMatch", "is forbidden unless resourceVersion is provided")
        raise invalid(resource, "", [problem])
    if token and asked not in {None, 0}:
        raise bad_request("specifying resource version is not allowed when using continue")
    if asked is not None and asked > store.version:
        raise from_the_future(asked, store.version)
    if token:
        version, start = _decode(token)
    else:
        version, start = (asked if match == "Exact" and asked is not None else store.version), ("", "")
    try:
        objects = store.objects(resource.storage, namespace, at=version)
    except Expired as error:
        raise expired_continue() if token else expired(error.asked, error.oldest) from error
    objects = [obj for obj in objects if (not token or key_of(obj) > start) and holds(obj)]
    if not limit or asked == 0 or len(objects) <= limit:
        return Page(objects, version)
    page = objects[:limit]
    return Page(page, version, _encode(version, key_of(page[-1])))


def _encode(version: int, last: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((version, last))).decode().rstrip("=")


def _decode(token: str) -> tuple[int, tuple[str, str]]:
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        return msgspec.json.decode(text, type=tuple[int, tuple[str, str]])
    except (binascii.Error, msgspec.DecodeError) as error:
        raise StatusError(400, "BadRequest", f"continue key is not valid: {error}") from error
