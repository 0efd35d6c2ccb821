"""
Waiting pods, best first, of which any may leave at any time.

A binary heap whose entries outlive their pods. A replica that only watches never asks for the best, so what is stale
is counted: beyond as many as there are pods, and some, the heap is built anew. That keeps memory in proportion to the
pods, and each step short.
"""

import heapq
from collections.abc import Iterator
from typing import Any, Final

import attrs

from neuron_scheduler.scheduling.queue.queued_pod import QueuedPod

_SLACK: Final = 64
"""Stale entries that are not worth building a small heap anew."""


@attrs.define(eq=False)
class PodHeap:
    """Pods, each with a key that can be compared; of equal keys the one that came first is the better."""

    _entries: list[tuple[Any, int, QueuedPod]] = attrs.field(factory=list)
    _tickets: dict[QueuedPod, int] = attrs.field(factory=dict)
    _pushed: int = 0

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, queued: QueuedPod) -> bool:
        return queued in self._tickets

    def __iter__(self) -> Iterator[QueuedPod]:
        """Yield the pods in the order in which they came in."""
        return iter(self._tickets)

    def push(self, queued: QueuedPod, key: Any) -> None:
        """Take in a pod that is not there."""
        self._pushed += 1
        self._tickets[queued] = self._pushed
        heapq.heappush(self._entries, (key, self._pushed, queued))

    def first(self) -> QueuedPod | None:
        """Return the best pod, which stays."""
        while self._entries:
            _, ticket, queued = self._entries[0]
            if self._tickets.get(queued) == ticket:
                return queued
            heapq.heappop(self._entries)
        return None

    def discard(self, queued: QueuedPod) -> None:
        """Let a pod leave, if it is there."""
        if self._tickets.pop(queued, None) is None or len(self._entries) <= 2 * len(self._tickets) + _SLACK:
            return
        self._entries = [entry for entry in self._entries if self._tickets.get(entry[2]) == entry[1]]
        heapq.heapify(self._entries)
