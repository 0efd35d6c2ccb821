"""
Which client is served next when more wait than can be served: peers take turns, however many connections each opens.

The kubelet asks a few times a minute, from an address that no pod has, so its probe is always among the next, whatever
the pods of the cluster do. Does not wait, and does not depend on the time or on what the items are.
"""

from collections import deque
from typing import Final, Generic, TypeVar

import attrs

MOST_PEERS: Final = 4096
"""Peers whose last turn is known; the oldest ones are dropped, and then count as new."""

T = TypeVar("T")


@attrs.define(eq=False)
class Turns(Generic[T]):
    """
    A queue for each peer; the next turn goes to the peer whose last turn is longest ago.

    Attributes:
        most: how many items may wait in all.
    """

    most: int
    _waiting: dict[str, deque[T]] = attrs.field(factory=dict, init=False)
    _size: int = attrs.field(default=0, init=False)
    _turn: int = attrs.field(default=0, init=False)
    _last_turns: dict[str, int] = attrs.field(factory=dict, init=False)

    def __len__(self) -> int:
        return self._size

    def add(self, peer: str, item: T) -> T | None:
        """
        Queue an item, and return the one that is dropped if there are too many now.

        That is the newest item of the peer with the most; among equals, of the peer that was served last.
        """
        self._waiting.setdefault(peer, deque()).append(item)
        self._size += 1
        if self._size <= self.most:
            return None
        return self._remove(max(self._waiting, key=self._claims), newest=True)

    def next(self) -> T:
        """Remove and return the item whose turn it is; there must be one."""
        peer = min(self._waiting, key=self._last_turn)
        self._turn += 1
        self._last_turns.pop(peer, None)
        self._last_turns[peer] = self._turn  # the dict stays in the order of the turns
        if len(self._last_turns) > MOST_PEERS:
            del self._last_turns[next(iter(self._last_turns))]
        return self._remove(peer, newest=False)

    def _remove(self, peer: str, *, newest: bool) -> T:
        items = self._waiting[peer]
        item = items.pop() if newest else items.popleft()
        if not items:
            del self._waiting[peer]
        self._size -= 1
        return item

    def _claims(self, peer: str) -> tuple[int, int]:
        return len(self._waiting[peer]), self._last_turn(peer)

    def _last_turn(self, peer: str) -> int:
        return self._last_turns.get(peer, 0)
