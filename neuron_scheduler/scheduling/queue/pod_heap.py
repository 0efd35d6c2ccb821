"""
Waiting pods, best first; any pod can be removed at any time.

A binary heap in which the entry of a removed pod stays until it comes to the top. A standby replica never asks for the
best pod, so the heap is rebuilt when it has more stale entries than pods, plus a few. That keeps memory proportional to
the pods, and each step short.
"""

import heapq
from collections.abc import Iterator
from typing import Any, Final

import attrs

from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod

_SLACK: Final = 64
"""Stale entries for which a small heap is not rebuilt."""


@attrs.define(eq=False)
class PodHeap:
    """Pods by a comparable key; of equal keys the pod that was pushed first is the better."""

    _entries: list[tuple[Any, int, QueuedPod]] = attrs.field(factory=list)
    _tickets: dict[QueuedPod, int] = attrs.field(factory=dict)
    _pushed: int = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, queued: QueuedPod) -> bool:
        return queued in self._tickets

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield the pods in the order in which they were pushed."""
        return iter(self._tickets)

    def push(self, queued: QueuedPod, key: Any) -> None:
        """Add a pod that is not here."""
        self._pushed += 1
        self._tickets[queued] = self._pushed
        heapq.heappush(self._entries, (key, self._pushed, queued))

    def first(self) -> QueuedPod | None:
        """Return the best pod, without removing it."""
        while self._entries:
            _, ticket, queued = self._entries[0]
            if self._tickets.get(queued) == ticket:
                return queued
            heapq.heappop(self._entries)
        return None

    def discard(self, queued: QueuedPod) -> None:
        """Remove a pod, if it is here."""
        if self._tickets.pop(queued, None) is None or len(self._entries) <= 2 * len(self._tickets) + _SLACK:
            return
        self._entries = [entry for entry in self._entries if self._tickets.get(entry[2]) == entry[1]]
        heapq.heapify(self._entries)
