"""
What has been seen of one resource, and what a new sight of it means: added, updated, deleted, malformed.

The part of the informer without I/O. Keeps the last good object of every key, so that a deletion that was missed, or
that arrives unreadable, still hands out what is given back. If the handler raises, the object
is taken back and reported as malformed in the same step, so that a pod on a node becomes an unknown holder there.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import attrs

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.telemetry import logs


class Identified(Protocol):
    """An object with a uid."""

    @property
    def uid(self) -> str:
        """Identity; a recreated object of the same name has another."""


T = TypeVar("T", bound=Identified)
T_contra = TypeVar("T_contra", bound=Identified, contravariant=True)


class Handler(Protocol[T_contra]):
    """
    What happens to objects, called synchronously and in order.

    `malformed` may come again for a key, with other contents; exactly one `mended` with the last of them follows when
    the object can be read again (after its `added` or `updated`) or is gone. An object without a key is reported every
    time it is seen, and never mended.
    """

    def added(self, new: T_contra, /) -> None:
        """Take in an object that was not there."""

    def updated(self, old: T_contra, new: T_contra, /) -> None:
        """Take in a change of what we read of an object."""

    def deleted(self, old: T_contra, /) -> None:
        """Let go of an object, given as it was last read."""

    def malformed(self, found: Malformed, /) -> None:
        """Take in an object that cannot be read; what was last read of it, if anything, stays."""

    def mended(self, found: Malformed, /) -> None:
        """Let go of a malformed object."""


log = logs.logger(__name__)


def _count_nothing() -> None:
    """Count nothing."""


@attrs.define(eq=False, kw_only=True)
class ObjectStore(Generic[T]):
    """
    The objects of one resource by key.

    Attributes:
        same: whether a change is none that the handler needs to hear of.
        failed: called whenever the handler has raised.
    """

    handler: Handler[T]
    same: Callable[[T, T], bool]
    failed: Callable[[], None] = _count_nothing
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)
    _objects: dict[str, T] = attrs.field(factory=dict, init=False)
    _malformed: dict[str, Malformed] = attrs.field(factory=dict, init=False)
    _doubtful: set[str] = attrs.field(factory=set, init=False)  # the handler may hold them, in whole or in part

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, decoded: Decoded[T]) -> None:
        """Take in an object as it is now."""
        value = decoded.value
        if value is None:
            self.remove(decoded.key)
            return
        try:
            if isinstance(value, Malformed):
                self._set_aside(value)
            else:
                self._keep(decoded.key, value)
        except Exception as error:  # noqa: BLE001 - an error of ours about one object costs that object
            self._give_up(decoded, error)

    def remove(self, key: str) -> None:
        """Remove an object, readable or not; if the handler fails to remove it, the next list tries again."""
        old = self._objects.get(key)
        try:
            if old is not None:
                self._let_go(key, old)
            self._mend(key)
            self._warned.forget(key)
        except Exception as error:  # noqa: BLE001 - as above
            self._tell(key, error)

    def missing(self, seen: set[str]) -> Iterable[str]:
        """Return the keys that are here and not among those seen."""
        return [key for key in (self._objects | self._malformed) if key not in seen]

    def _keep(self, key: str, value: T) -> None:
        old = self._objects.get(key)
        if old is not None and (old.uid != value.uid or key in self._doubtful):
            self._let_go(key, old)
            old = None
        if old is None:
            self._objects[key] = value
            self.handler.added(value)
        elif not self.same(old, value):
            self._objects[key] = value
            self.handler.updated(old, value)
        self._mend(key)

    def _set_aside(self, found: Malformed) -> None:
        old = self._objects.get(found.key)
        if old is not None and found.uid and old.uid != found.uid:
            self._let_go(found.key, old)
        if not found.key or self._malformed.get(found.key) != found:
            self._report(found)

    def _report(self, found: Malformed) -> None:
        if found.key:
            self._malformed[found.key] = found
        self.handler.malformed(found)

    def _mend(self, key: str) -> None:
        if self._malformed:
            found: Any = self._malformed.pop(key, None)
            if found is not None:
                self.handler.mended(found)

    def _let_go(self, key: str, old: T) -> None:
        self.handler.deleted(old)
        del self._objects[key]
        self._doubtful.discard(key)

    def _give_up(self, decoded: Decoded[T], error: Exception) -> None:
        """Remove from the handler what it may have stored in part, and report the object as malformed."""
        value, key = decoded.value, decoded.key
        self._tell(key, error)
        if value is None or isinstance(value, Malformed):
            self._malformed.pop(key, None)  # so that it is handed over again when it is seen next
            return
        self._doubtful.add(key)
        old = self._objects.setdefault(key, value)
        reason = f"{type(error).__name__}: {error}"
        found = Malformed(type(value).__name__, key, reason, value.uid, getattr(value, "node_name", ""))
        for tell in (partial(self._let_go, key, old), partial(self._report, found)):
            try:
                tell()
            except Exception as again:  # noqa: BLE001 - as above
                self._tell(key, again)

    def _tell(self, key: str, error: Exception) -> None:
        self.failed()
        if self._warned(key, type(error).__name__):
            log.error("Skipping object that could not be handled", key=key, exc=error, traceback=True)
