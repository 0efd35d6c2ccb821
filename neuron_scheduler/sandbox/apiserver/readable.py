"""
What lists and watches read: tables as a store has them, or as a copy has them that follows the store.

Does not write.
"""

from typing import Protocol

from neuron_scheduler.sandbox.apiserver.store import Change, Object


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
