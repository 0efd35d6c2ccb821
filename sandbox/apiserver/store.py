"""
A versioned object store: tables of objects, one counter of resource versions, and a bounded log of changes per table.

Stored objects are values: to change one, copy it and put the copy. The log answers "what happened since version N", or
raises `Expired` if it no longer knows, and can be read backwards to see a table as it was.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

import anyio
import attrs

FIRST_VERSION: Final = 1000  # older ones never existed: a test can always name an expired version

Object: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str]  # (namespace or "", name)


class Expired(Exception):  # noqa: N818 - the API's own word
    """The log no longer reaches back to the requested version; `oldest` is the first version it can answer from."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"version {asked} is older than {oldest}")
        self.asked = asked
        self.oldest = oldest


@attrs.frozen
class Change:
    """One change of a table. A DELETED carries the last state with the version of the deletion."""

    version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Object
    previous: Object | None


def key_of(obj: Object) -> Key:
    """Return namespace and name."""
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


@attrs.define(eq=False)
class _Table:
    objects: dict[Key, Object] = attrs.field(factory=dict)
    log: list[Change] = attrs.field(factory=list)
    oldest: int = FIRST_VERSION  # the log holds every change after this version
    dropped: int = 0  # changes that the log no longer holds
    changed: anyio.Event = attrs.field(factory=anyio.Event)


@attrs.define(eq=False)
class Store:
    """
    Tables by name, all versions from one counter.

    Attributes:
        history: bounds each table's log.
        listeners: called with the table's name and each change, in the step that makes it.
    """

    history: int = 10_000
    listeners: list[Callable[[str, Change], None]] = attrs.field(factory=list)
    _version: int = FIRST_VERSION
    _tables: dict[str, _Table] = attrs.field(factory=dict)
    _changed: anyio.Event = attrs.field(factory=anyio.Event)

    @property
    def version(self) -> int:
        """The version of the last change of any table."""
        return self._version

    def get(self, table: str, namespace: str, name: str) -> Object | None:
        """Return the object, which must not be mutated, or None."""
        return self._table(table).objects.get((namespace, name))

    def objects(self, table: str, namespace: str | None = None, *, at: int | None = None) -> list[Object]:
        """
        Return the objects in key order, of all namespaces or of one, as they are or as they were at a version.

        Raises:
            Expired: the log does not reach back to `at`.
        """
        rows = self._table(table).objects
        if at is not None and at < self._version:
            rows = dict(rows)
            for change in reversed(self.since(table, at)):
                if change.previous is None:
                    del rows[key_of(change.object)]
                else:
                    rows[key_of(change.object)] = change.previous
        return [rows[key] for key in sorted(rows) if namespace is None or key[0] == namespace]

    def put(self, table: str, obj: Object) -> Object:
        """Write an object, new or not, with the next version, and return what was stored. Nothing is validated."""
        contents, key = self._table(table), key_of(obj)
        previous = contents.objects.get(key)
        stored = self._stamped(obj)
        contents.objects[key] = stored
        self._record(table, Change(self._version, "ADDED" if previous is None else "MODIFIED", stored, previous))
        return stored

    def remove(self, table: str, namespace: str, name: str) -> Object | None:
        """Remove an object; return its last state with the deletion's version, None if there was none."""
        contents = self._table(table)
        previous = contents.objects.pop((namespace, name), None)
        if previous is None:
            return None
        last = self._stamped(previous)
        self._record(table, Change(self._version, "DELETED", last, previous))
        return last

    def take(self, table: str, change: Change) -> None:
        """Make a change of another store in this one too, with its version, which must be higher than the last one."""
        contents, key = self._table(table), key_of(change.object)
        if change.type == "DELETED":
            contents.objects.pop(key, None)
        else:
            contents.objects[key] = change.object
        self._version = change.version
        self._record(table, change)

    def since(self, table: str, version: int) -> list[Change]:
        """
        Return the changes after a version, oldest first; none for a version of the future.

        Raises:
            Expired: the log does not reach back that far.
        """
        return self.after(table, self.position(table, version))

    def position(self, table: str, version: int) -> int:
        """Return the position in the log after a version, for `after`. Raises `Expired` as `since` does."""
        contents = self._table(table)
        if version < contents.oldest:
            raise Expired(version, contents.oldest)
        return contents.dropped + bisect_right(contents.log, version, key=lambda change: change.version)

    def after(self, table: str, position: int) -> list[Change]:
        """Return the changes from a position on; the next position is higher by their number. Raises `Expired`."""
        contents = self._table(table)
        if position < contents.dropped:
            raise Expired(self._version, contents.oldest)
        return contents.log[position - contents.dropped :]

    async def changed(self, table: str = "") -> None:
        """Wait for the next change of a table, or of any."""
        await (self._table(table).changed if table else self._changed).wait()

    async def follow(self, table: str, version: int) -> AsyncIterator[Change]:
        """Yield each change after a version when it comes, without end. Raises `Expired` as `since` does."""
        position = self.position(table, version)
        while True:
            changes = self.after(table, position)
            for change in changes:
                yield change
            position += len(changes)
            if not changes:
                await self.changed(table)

    def expire(self, tables: Iterable[str] | None = None) -> None:
        """
        Forget the log of these tables, or of all.

        A reader with an older version gets `Expired`; a follower that has read everything does not.
        """
        for name in list(self._tables if tables is None else tables):
            contents = self._table(name)
            contents.dropped += len(contents.log)
            contents.log.clear()
            contents.oldest = self._version

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            self._tables[name] = _Table()
        return self._tables[name]

    def _stamped(self, obj: Object) -> Object:
        self._version += 1
        return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self._version)}}

    def _record(self, table: str, change: Change) -> None:
        contents = self._table(table)
        contents.log.append(change)
        if len(contents.log) > self.history * 2:
            dropped = len(contents.log) - self.history
            contents.oldest = contents.log[dropped - 1].version
            contents.dropped += dropped
            del contents.log[:dropped]
        contents.changed.set()
        contents.changed = anyio.Event()
        self._changed.set()
        self._changed = anyio.Event()
        for listener in self.listeners:
            listener(table, change)
