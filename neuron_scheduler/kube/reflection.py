"""
What has been seen of one resource, and what a new sight of it means: added, updated, deleted, malformed.

The part of the informer without I/O. Keeps the last good object of every key, so that a deletion that was missed, or
that arrives unreadable, still hands out what is given back.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs

from neuron_scheduler.kube.codec import Decoded, Malformed
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod


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


_COMPARED: Final = attrgetter(
    *(field.name for field in attrs.fields(Pod) if field.name not in ("resource_version", "observed_generation"))
)


def same_pod(old: Pod, new: Pod) -> bool:
    """Tell whether two sights of a pod differ in nothing but their versions."""
    return bool(_COMPARED(old) == _COMPARED(new))


def same_node(old: Node, new: Node) -> bool:
    """Tell whether two sights of a node are equal."""
    return old == new


@attrs.define(eq=False, kw_only=True)
class Reflection(Generic[T]):
    """
    The objects of one resource by key.

    Attributes:
        same: whether a change is none that the handler needs to hear of.
    """

    handler: Handler[T]
    same: Callable[[T, T], bool]
    _objects: dict[str, T] = attrs.field(factory=dict, init=False)
    _malformed: dict[str, Malformed] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._objects)

    def put(self, decoded: Decoded[T]) -> None:
        """Take in an object as it is now."""
        value = decoded.value
        if value is None:
            self.remove(decoded.key)
        elif isinstance(value, Malformed):
            self._set_aside(value)
        else:
            self._keep(decoded.key, value)

    def remove(self, key: str) -> None:
        """Let go of an object, readable or not."""
        old = self._objects.pop(key, None)
        if old is not None:
            self.handler.deleted(old)
        self._mend(key)

    def missing(self, seen: set[str]) -> Iterable[str]:
        """Return the keys that are here and not among those seen."""
        return [key for key in (self._objects | self._malformed) if key not in seen]

    def _keep(self, key: str, value: T) -> None:
        old = self._objects.get(key)
        if old is None:
            self._objects[key] = value
            self.handler.added(value)
        elif old.uid != value.uid:
            self.handler.deleted(old)
            self._objects[key] = value
            self.handler.added(value)
        elif not self.same(old, value):
            self._objects[key] = value
            self.handler.updated(old, value)
        self._mend(key)

    def _set_aside(self, found: Malformed) -> None:
        old = self._objects.get(found.key)
        if old is not None and found.uid and old.uid != found.uid:
            del self._objects[found.key]
            self.handler.deleted(old)
        if found.key and self._malformed.get(found.key) == found:
            return
        if found.key:
            self._malformed[found.key] = found
        self.handler.malformed(found)

    def _mend(self, key: str) -> None:
        if self._malformed:
            found: Any = self._malformed.pop(key, None)
            if found is not None:
                self.handler.mended(found)
