"""
The states of each node over time.

A decision is judged by what its node may have been like: every state that was current at any time from the decision to
the commit, and some time before, because we are told late.
"""

from typing import Final

import attrs

from tests.simulation.oracles.change import Change, Object, annotations_of
from tests.simulation.oracles.reading import ALLOC_TIME, node_name_of

_NANOSECONDS: Final = 1e9


@attrs.define(eq=False, kw_only=True)
class NodeStates:
    """
    Remembers the nodes.

    Attributes:
        told_within: seconds after which a replica must know of a change.
        started_at: the wall clock, in seconds since 1970, when the clock of the history was 0.
    """

    told_within: float
    started_at: float = 0.0
    _states: dict[str, list[tuple[float, Object | None]]] = attrs.field(factory=dict)  # by name: from when on
    _created: dict[str, float] = attrs.field(factory=dict)  # pods by uid

    def changed(self, change: Change) -> None:
        """Remember a node's new state, and when a pod was first seen."""
        if change.kind == "Node":
            self._states.setdefault(change.key[1], []).append((change.at, change.after))
        elif change.kind == "Pod":
            self._created.setdefault(change.uid, change.at)

    def created_at(self, uid: str) -> float:
        """Return when a pod was first seen; now, by any clock, if it was not."""
        return self._created.get(uid, float("inf"))

    def decided_at(self, change: Change) -> float:
        """
        Return the latest moment at which a Binding may have been decided, by the clock of the history.

        The Binding may have been sent again and again, so the commit says little. `NEURON_ALLOC_TIME` is written when
        it is sent first, by a clock that may be wrong; it counts if it lies in the pod's life.
        """
        text = annotations_of(change.object).get(ALLOC_TIME, "")
        if text.isascii() and text.isdecimal() and len(text) < 20:
            sent = int(text) / _NANOSECONDS - self.started_at
            return min(change.at, max(sent, self._created.get(change.uid, change.at)))
        return self._created.get(change.uid, change.at)

    def since_decision(self, change: Change) -> list[Object]:
        """Return every state of a Binding's node that its decision may have seen, the present one included."""
        first = self.decided_at(change) - self.told_within
        states = self._states.get(node_name_of(change.object), [(first, None)])
        starts = [at for at, _ in states[1:]] + [float("inf")]
        return [state for (_, state), until in zip(states, starts, strict=True) if state is not None and until >= first]
