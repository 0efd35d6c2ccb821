"""
List one resource in pages that stay within a budget of bytes, object by object.

client-go's pager (`tools/pager/pager.go`) counts objects; 500 pods of a megabyte would be half a gigabyte. A page that
is too large is dropped while it is read, and requested with a smaller limit, down to one object; an object that is
larger than any may be is malformed, with the name from its beginning. Refuses to compare a list with the one before:
that is for `object_store`.
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
from neuron_scheduler.kube.objects.json_scanner import ScanError, finish_with_pauses, members, strings

T = TypeVar("T")

PAGE: Final = 500
PAGE_BYTES: Final = 8 << 20  # the size that a page should have; it may have twice as much
SMALLER: Final = 8  # times, the next limit after a page that was too large
STEP: Final = 25  # objects that are read before the event loop gets a turn
STEP_BYTES: Final = 512 << 10  # or bytes that are read before it: a megabyte takes up to 20 ms
PAGE_TIMEOUT: Final = 60.0

_LIST: Final = msgspec.json.Decoder(wire.List)


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
    """Lists one resource; every method raises ApiError or UnreachableError."""

    client: Api
    resource: Resource[T]

    async def pages(self) -> AsyncIterator[Page[T]]:
        """
        Yield all pages of one consistent list.

        A page without objects is the last, and no token comes twice. A server that breaks this rule is not an API
        server, and the list would have no end.
        """
        limit, token, tokens = PAGE, "", {""}
        while True:
            try:
                body = await self._body(limit, token)
            except OversizedLineError as error:
                if limit > 1:
                    limit = max(1, limit // SMALLER)
                    continue
                page = await self._beginning(error)
            else:
                page = await self._page(body)
                limit = min(PAGE, max(1, PAGE_BYTES * len(page.objects) // len(body)))
            yield page
            if not page.token:
                return
            token = page.token
            if token in tokens or not page.objects:
                raise UnreachableError(
                    f"the list of {self.resource.path} has no end: a page is empty, or its token was used before"
                )
            tokens.add(token)
            await checkpoint()

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
                async with self.client.stream(self.resource.path, params=params, read_timeout=PAGE_TIMEOUT) as stream:
                    return await stream.whole(most)
        except TimeoutError as error:
            raise ApiTimeoutError(f"no page of {self.resource.path} within {PAGE_TIMEOUT:g} s") from error

    async def _page(self, body: bytes) -> Page[T]:
        """
        Return the page that these bytes are.

        Raises:
            UnreachableError: they are no list.
        """
        items: Sequence[Encoded]
        try:
            page = _LIST.decode(body)
            items, version, token = page.items or (), page.metadata.resource_version, page.metadata.continue_ or ""
            kind = page.kind
        except Exception:  # noqa: BLE001 - one object that cannot even be skipped (RecursionError) makes all fail
            items, kind = await self._items(body)
            version, token = await self._position(body)
        if not version or kind not in ("", f"{self.resource.kind}List"):
            raise UnreachableError(f"the answer to GET {self.resource.path} is no list: {_excerpt(body)}")
        step = max(1, min(STEP, STEP_BYTES * len(items) // len(body)))
        objects = []
        for number, item in enumerate(items, start=1):
            read = self.resource.try_decode(item)
            objects.append(await finish_with_pauses(self.resource.decode_in_steps(item)) if read is None else read)
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
            parts = {member.name: member for member in await finish_with_pauses(members(body, b'"items"'))}
        except ScanError as error:
            raise UnreachableError(f"the answer to GET {self.resource.path} is no list: {error}") from error
        items, kind = parts.get(b'"items"'), parts.get(b'"kind"')
        if items is None or body[items.start : items.start + 1] != b"[":
            raise UnreachableError(f"the answer to GET {self.resource.path} is no list: {_excerpt(body)}")
        named = "" if kind is None else body[kind.start : kind.end].strip(b'"').decode(errors="replace")
        return [body[item.start : item.end] for item in items.members], named

    async def _position(self, body: bytes) -> tuple[str, str]:
        """Return the version and the continue token of a list that may be cut off."""
        metadata = await finish_with_pauses(strings(body, b'"metadata"'))
        return metadata.get(b'"resourceVersion"', ""), metadata.get(b'"continue"', "")


def _excerpt(body: bytes) -> str:
    return body[:200].decode(errors="replace")
