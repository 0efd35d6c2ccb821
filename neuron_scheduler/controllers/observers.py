"""
Tells the parts of the process what a watch event has changed.

All changes of an event are known before the first observer is told. An error in one observer is reported; the others
are told all the same.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from neuron_scheduler.cluster.changes import Change, Observer, PodDoubted, SpaceChanged
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

Deferrable: TypeAlias = SpaceChanged | PodDoubted


@attrs.define(eq=False)
class PodList:
    """
    Whether a list of all pods is being handed over.

    New pods come before deletions, so until its end a node may look fuller than it is. No pod is refused, and no space
    given up, for that.
    """

    is_open: bool = False
    _deferred: dict[str, Deferrable] = attrs.field(factory=dict, init=False)  # by node name or uid

    def put_off(self, change: Deferrable) -> bool:
        """Put a change off to the end of the list, and return True, while the list is open."""
        if self.is_open:
            self._deferred[change.node_name if isinstance(change, SpaceChanged) else change.uid] = change
        return self.is_open

    def close(self) -> Iterable[Deferrable]:
        deferred, self._deferred, self.is_open = self._deferred, {}, False
        return deferred.values()


@attrs.define(eq=False)
class Observers:
    """The parts that are told of changes, in order; the queue first, so the others find a pod where it is."""

    observers: tuple[Observer, ...]
    pod_list: PodList
    errors: UnexpectedErrors
    _by_kind: dict[type[Change], list[Observer]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for observer in self.observers:
            for kind in observer.OBSERVES:
                self._by_kind.setdefault(kind, []).append(observer)

    def tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, Deferrable) and self.pod_list.put_off(change):
                continue
            for observer in self._by_kind.get(type(change), ()):
                try:
                    observer.observe(change)
                except Exception as error:  # noqa: BLE001 - it hurts no other observer, and not the object
                    self.errors.report(error, task=type(observer).__name__, pod="")

    @contextmanager
    def list_context(self) -> Iterator[None]:
        """
        Put off `SpaceChanged` and `PodDoubted` until the end of the block, in which a list of pods is handed over.

        A list that is broken off is followed by another: only the end of that one says who is gone.
        """
        self.pod_list.is_open = True
        yield
        self.tell(self.pod_list.close())
