"""
List one resource in pages that stay within a budget of bytes, object by object.

client-go's pager (`tools/pager/pager.go`) counts objects; 500 pods of a megabyte would be half a gigabyte. A page that
is too large is dropped while it is read, and requested with a smaller limit, down to one object; an object that is
larger than any may be is malformed, with the name from its beginning.

A page that does not come is requested with a smaller limit too, at once and over another connection. The first one may
be dead behind a proxy that acknowledges bytes, and a server that has too much to do is quicker with a smaller page.
Refuses to compare a list with the one before: that is for `object_store`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, Protocol, TypeVar

import anyio
import attrs
import msgspec
from anyio.lowlevel import checkpoint

from neuron_scheduler.errors import ApiError, ApiTimeoutError, OversizedLineError, UnreachableError
from neuron_scheduler.kube.http.client import READ_TRIES
from neuron_scheduler.kube.http.stream import LONGEST, Stream
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Decoded, Encoded, Resource
from neuron_scheduler.kube.objects.json_scanner import ScanError, finish_with_pauses, list_items, members, strings

T = TypeVar("T")

PAGE: Final = 500
PAGE_BYTES: Final = 8 << 20  # the size that a page should have; it may have twice as much
SMALLER: Final = 8  # times, the next limit after a page that was too large
STEP: Final = 25  # objects that are read before the event loop gets a turn
STEP_BYTES: Final = 512 << 10  # or bytes that are read before it: a megabyte takes up to 20 ms
PAGE_TIMEOUT: Final = 60.0
PAGE_SILENCE: Final = 10.0  # seconds without a byte; with the 15 s of a Lease less than the 30 s of the promise

_LIST: Final = msgspec.json.Decoder(wire.List)
_METADATA: Final = msgspec.json.Decoder(wire.ListMeta)


class Api(Protocol):
    """The part of the client that a pager uses."""

    def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AbstractAsyncContextManager[Stream]:
        """Send a request whose answer is read as it arrives."""


@attrs.frozen
class Page(Generic[T]):
    """
    One page of a list.

    Attributes:
        version: of the list, the same on each of its pages.
        token: of the next page; empty on the last.
    """

    objects: list[Decoded[T]]
    version: str
    token: str


@attrs.define(eq=False)
class Pager(Generic[T]):
    """
    Lists one resource; every method raises ApiError or UnreachableError.

    Attributes:
        gives_up: how many lists in a row are given up because of an object that is no JSON.
    """

    client: Api
    resource: Resource[T]
    gives_up: int = 0
    _damaged: int = attrs.field(default=0, init=False)  # lists in a row

    async def pages(self) -> AsyncIterator[Page[T]]:
        """
        Yield all pages of one consistent list.

        A page without objects is the last, and no token comes twice. A server that breaks this rule is not an API
        server, and the list would have no end.
        """
        limit, token, tokens, damaged = PAGE, "", {""}, False
        while True:
            try:
                body = await self._body(limit, token)
            except ApiTimeoutError:
                if limit == 1:
                    raise
                limit = max(1, limit // SMALLER)
                continue
            except OversizedLineError as error:
                if limit > 1:
                    limit = max(1, limit // SMALLER)
                    continue
                page = await self._beginning(error)
            else:
                page = await self._page(body)
                damaged |= self._has_damage(page)
                limit = min(PAGE, max(1, PAGE_BYTES * len(page.objects) // len(body)))
            yield page
            if not page.token:
                self._damaged = self._damaged if damaged else 0
                return
            token = page.token
            if token in tokens or not page.objects:
                raise UnreachableError(
                    f"the list of {self.resource.path} has no end: a page is empty, or its token was used before"
                )
            tokens.add(token)
            await checkpoint()

    def _has_damage(self, page: Page[T]) -> bool:
        """
        Raise UnreachableError if an object was damaged on its way, because the next list may have it whole.

        After several such lists it is kept as malformed, until a list is whole: nothing may keep a list from its end.
        """
        damaged = [decoded.key for decoded in page.objects if decoded.damaged]
        if damaged and self._damaged < self.gives_up:
            self._damaged += 1
            raise UnreachableError(
                f"{len(damaged)} objects of the list of {self.resource.path} are no JSON: {damaged[0]}"
            )
        return bool(damaged)

    async def version(self) -> str:
        """Return the resource's current version."""
        try:
            return (await self._page(await self._body(1, ""))).version
        except OversizedLineError as error:
            return (await self._beginning(error)).version

    async def _body(self, limit: int, token: str) -> bytes:
        """Return a page's bytes. It waits after a 429 and tries again: giving up would lose the pages before."""
        params = {**self.resource.params, "limit": str(limit), **({"continue": token} if token else {})}
        most = 2 * PAGE_BYTES if limit > 1 else LONGEST
        for _ in range(READ_TRIES - 1):
            try:
                return await self._read(params, most)
            except ApiError as error:
                if error.status != 429:
                    raise
                await anyio.sleep(1.0 if error.retry_after is None else error.retry_after)
        return await self._read(params, most)

    async def _read(self, params: Mapping[str, str], most: int) -> bytes:
        try:
            with anyio.fail_after(PAGE_TIMEOUT):
                async with self.client.stream(self.resource.path, params=params, read_timeout=PAGE_SILENCE) as stream:
                    return await stream.whole(most)
        except TimeoutError as error:
            raise ApiTimeoutError(f"no page of {self.resource.path} within {PAGE_TIMEOUT:g} s") from error

    async def _page(self, body: bytes) -> Page[T]:
        """
        Return the page that these bytes are.

        Raises:
            UnreachableError: they are no list.
        """
        encoded: Sequence[Encoded]
        try:
            page = _LIST.decode(body)
            encoded, kind, metadata = page.items or (), page.kind, _read(page.metadata)
        except Exception:  # noqa: BLE001 - one object that cannot even be skipped (RecursionError) makes all fail
            encoded, kind = await self._items(body)
            metadata = await self._metadata(body)
        version, token = metadata.resource_version, metadata.continue_ or ""
        if not version or kind not in ("", f"{self.resource.kind}List"):
            raise UnreachableError(f"the answer to GET {self.resource.path} is no list: {_excerpt(body)}")
        step = max(1, min(STEP, STEP_BYTES * len(encoded) // len(body)))
        objects = []
        for number, item in enumerate(encoded, start=1):
            read = self.resource.try_decode(item)
            objects.append(await finish_with_pauses(self.resource.decode_in_steps(item)) if read is None else read)
            if not objects[-1].key:
                raise UnreachableError(
                    f"an object in the list of {self.resource.path} cannot be read, not even its name"
                )
            if number % step == 0:
                await checkpoint()
        return Page(objects, version, token)

    async def _beginning(self, error: OversizedLineError) -> Page[T]:
        """Return the page of one object of which only the beginning was kept; the list's metadata comes before it."""
        body = error.beginning
        version, token = await self._position(body)
        start = body.find(b'"items"')
        if not version or start < 0:
            raise error
        read = await finish_with_pauses(self.resource.malformed(body[start:], error))
        return Page([read], version, token)

    async def _items(self, body: bytes) -> tuple[Sequence[Encoded], str]:
        """Return the objects of a list that cannot be decoded as a whole, and its kind."""
        try:
            found, kind = await finish_with_pauses(list_items(body))
        except ScanError as error:
            raise UnreachableError(f"the answer to GET {self.resource.path} is no list: {error}") from error
        if found is None:
            raise UnreachableError(f"the answer to GET {self.resource.path} is no list: {_excerpt(body)}")
        return found, kind

    async def _metadata(self, body: bytes) -> wire.ListMeta:
        """Return the metadata of a whole list, strictly: without its token the other pages would count as deleted."""
        try:
            parts = {member.name: body[member.start : member.end] for member in await finish_with_pauses(members(body))}
            return _read(parts[b'"metadata"'])
        except (ScanError, LookupError, ValueError, RecursionError) as error:
            raise UnreachableError(f"the answer to GET {self.resource.path} is no list: {error!r}") from error

    async def _position(self, body: bytes) -> tuple[str, str]:
        """Return the version and the continue token of a list that may be cut off."""
        metadata = await finish_with_pauses(strings(body, b'"metadata"'))
        return metadata.get(b'"resourceVersion"', ""), metadata.get(b'"continue"', "")


def _read(metadata: Encoded) -> wire.ListMeta:
    """Return a list's metadata; a damaged name counts, which the decoder would skip as that of an unknown field."""
    return _METADATA.decode(bytes(metadata).decode())


def _excerpt(body: bytes) -> str:
    return body[:200].decode(errors="replace")
