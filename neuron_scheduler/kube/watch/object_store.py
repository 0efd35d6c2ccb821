"""
The last known state of each object of a resource, and what a new state means: added, updated, deleted or malformed.

It keeps the last good object of every key: a missed or unreadable deletion still hands it over. If the handler raises,
the object is deleted from it and reported as malformed in the same step. So a pod on a node becomes an unknown holder.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Generic, Protocol, TypeVar

import attrs

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.telemetry import logs

log = logs.logger(__name__)


class HasUid(Protocol):
    """An object with a uid."""

    @property
    def uid(self) -> str:
        """Identity; a recreated object of the same name has another."""


T = TypeVar("T", bound=HasUid)
T_contra = TypeVar("T_contra", bound=HasUid, contravariant=True)


class Handler(Protocol[T_contra]):
    """
    Handles what happens to objects; called synchronously and in order. It is in a room above this one.

    `on_malformed` may come again for a key, with other contents. One `on_malformed_gone` with the last of them follows
    when the object is gone or can be read again (after its `on_added` or `on_updated`).
    """

    def on_added(self, new: T_contra, /) -> None: ...

    def on_updated(self, old: T_contra, new: T_contra, /) -> None: ...

    def on_deleted(self, old: T_contra, /) -> None: ...

    def on_malformed(self, malformed: Malformed, /) -> None:
        """Add an object that cannot be read; its last known state, if there is one, stays."""

    def on_malformed_gone(self, malformed: Malformed, /) -> None: ...


@attrs.define(eq=False, kw_only=True)
class ObjectStore(Generic[T]):
    """The objects of one resource by key; `is_same` and `kind` are those of `Resource`."""

    handler: Handler[T]
    kind: str
    is_same: Callable[[T, T], bool]
    on_failure: Callable[[], None]
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)
    _objects: dict[str, T] = attrs.field(factory=dict, init=False)
    _malformed: dict[str, Malformed] = attrs.field(factory=dict, init=False)
    _doubtful: set[str] = attrs.field(factory=set, init=False)  # the handler may hold them, in whole or in part

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> T | None:
        """Return the last known state of an object that could be read; None if there is none."""
        return self._objects.get(key)

    def put(self, decoded: Decoded[T]) -> None:
        value = decoded.value
        if value is None:
            self.remove(decoded.key)
            return
        try:
            if isinstance(value, Malformed):
                self._put_malformed(value)
            else:
                self._keep(decoded.key, value)
        except Exception as error:  # noqa: BLE001 - an error of ours must affect no other object
            self._give_up(decoded, error)

    def remove(self, key: str) -> None:
        """Remove an object, readable or not; if the handler fails to remove it, the next list tries again."""
        old = self._objects.get(key)
        try:
            if old is not None:
                self._delete(key, old)
            self._forget_malformed(key)
            self._warned.forget(key)
        except Exception as error:  # noqa: BLE001 - as above
            self._log(key, error)

    def keys(self) -> Iterator[str]:
        """Yield the keys of all objects, readable or not, which must be the same until the end."""
        return chain(self._objects, self._malformed)

    def _keep(self, key: str, value: T) -> None:
        old = self._objects.get(key)
        if old is not None and (old.uid != value.uid or key in self._doubtful):
            self._delete(key, old)
            old = None
        if old is None:
            self._objects[key] = value
            self.handler.on_added(value)
        elif old is not value and old != value:  # the informer has compared most of a list
            self._objects[key] = value
            if not self.is_same(old, value):
                self.handler.on_updated(old, value)
        self._forget_malformed(key)

    def _put_malformed(self, malformed: Malformed) -> None:
        known = self._objects.get(malformed.key)
        if known is not None and malformed.uid and known.uid != malformed.uid:
            self._delete(malformed.key, known)
        before = self._malformed.get(malformed.key)
        if before is not None and before.uid != malformed.uid:
            self._forget_malformed(malformed.key)
        if before != malformed:
            self._report(malformed)

    def _report(self, malformed: Malformed) -> None:
        self._malformed[malformed.key] = malformed
        self.handler.on_malformed(malformed)

    def _forget_malformed(self, key: str) -> None:
        if self._malformed and (malformed := self._malformed.pop(key, None)) is not None:
            self.handler.on_malformed_gone(malformed)

    def _delete(self, key: str, old: T) -> None:
        self.handler.on_deleted(old)
        del self._objects[key]
        self._doubtful.discard(key)

    def _give_up(self, decoded: Decoded[T], error: Exception) -> None:
        """Delete from the handler an object that it may have stored in part, and report it as malformed."""
        value, key = decoded.value, decoded.key
        self._log(key, error)
        if value is None or isinstance(value, Malformed):
            self._malformed.pop(key, None)  # so that it is handed over again when it is seen next
            return
        self._doubtful.add(key)
        old = self._objects.setdefault(key, value)
        reason = f"{type(error).__name__}: {error}"
        malformed = Malformed(self.kind, key, reason, value.uid, getattr(value, "node_name", ""))
        for step in (partial(self._delete, key, old), partial(self._report, malformed)):
            try:
                step()
            except Exception as again:  # noqa: BLE001 - as above
                self._log(key, again)

    def _log(self, key: str, error: Exception) -> None:
        self.on_failure()
        if self._warned(key, type(error).__name__):
            log.error("Skipping object that could not be handled", key=key, exc=error, traceback=True)
