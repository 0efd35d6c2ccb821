"""
Where lists and watches come from.

The real server has a cache of its own between clients and etcd, which may be late. The sandbox reads its store; a test
may put a late copy in between. Does not depend on HTTP.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import attrs

from neuron_scheduler.sandbox.apiserver import listing, watch
from neuron_scheduler.sandbox.apiserver.resource import Resource
from neuron_scheduler.sandbox.apiserver.store import Store


class Reads(Protocol):
    """Answers lists and watches. Refusals are raised as `StatusError`."""

    async def page(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> listing.Page:
        """Return the page that a list request asks for."""

    def deliveries(self, asked: watch.Request, *, bookmark_interval: float) -> AsyncIterator[watch.Delivery]:
        """Yield the events of a watch."""


@attrs.frozen
class FromStore:
    """Reads what is stored."""

    store: Store

    async def page(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> listing.Page:
        """Return the page that a list request asks for."""
        return listing.read(self.store, resource, namespace, query)

    def deliveries(self, asked: watch.Request, *, bookmark_interval: float) -> AsyncIterator[watch.Delivery]:
        """Yield the events of a watch."""
        return watch.deliveries(self.store, asked, bookmark_interval=bookmark_interval)
