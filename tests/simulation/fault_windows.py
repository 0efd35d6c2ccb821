"""
Decides whether a fault of the scenario strikes now.

Each window has dice of its own, so that leaving one out does not change the others. Refuses to cause a fault: who asks
does that.
"""

from collections.abc import Callable, Iterable
from random import Random

import attrs

from tests.simulation.clock import CLOCK
from tests.simulation.scenario import Fault


@attrs.define(eq=False)
class FaultWindows:
    """
    The faults of one scenario.

    Attributes:
        struck: called with the kind and the place each time when one strikes.
    """

    seed: int
    faults: Iterable[Fault]
    struck: Callable[[str, str], None]
    _by_kind: dict[str, list[tuple[Fault, Random]]] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        for fault in self.faults:
            dice = Random(f"{self.seed}/{fault}")
            self._by_kind.setdefault(fault.kind, []).append((fault, dice))

    def strikes(self, kind: str, *targets: str, detail: str | None = None) -> Fault | None:
        """Return the fault of a kind that strikes one of these targets now; each open window rolls its dice once."""
        for fault, dice in self._by_kind.get(kind, ()):
            if not fault.at <= CLOCK.now < fault.until or (fault.target and fault.target not in targets):
                continue
            if detail is not None and fault.detail != detail:
                continue
            if dice.random() < fault.chance:
                self.struck(kind, "/".join(filter(None, targets)))
                return fault
        return None

    # -- what `network` asks -------------------------------------------------------------------------------------------

    def at_connect(self, client: str, server: str) -> str:
        """Return what happens to a new connection; see `network.Faults`."""
        for kind, what in CONNECTS.items():
            if self.strikes(kind, client, server):
                return what
        return ""

    def at_chunk(self, client: str, server: str) -> tuple[str, float]:
        """Return what happens to bytes on their way; see `network.Faults`."""
        for kind, what in CHUNKS.items():
            if kind in self._by_kind and (fault := self.strikes(kind, client, server)):
                return what, fault.seconds
        return "", 0.0


CONNECTS = {"connection refused": "refuse", "connection hangs": "hang"}
CHUNKS = {"connection cut": "cut", "connection cut in a chunk": "half", "connection silent": "silence", "late": "late"}
"""Kinds of faults of the network. A client can see each of them in any network, so it has to bear them."""
