"""
What a simulation is about, as a value: the replicas, the cluster, what people and machines do, and what goes wrong.

`scenarios` makes one from a seed. All chance that remains (delays of the network, whether a fault strikes) is drawn
from sources of its own for each fault and each connection: with one fault left out, the others stay as they were. So a
failing scenario can be made small.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, Protocol

import attrs

from tests.simulation.clock import CLOCK

GRACE: Final = 30.0
"""Seconds after the last fault within which each pod that fits has to be bound."""


@attrs.frozen(kw_only=True)
class Fault:
    """
    A time in which something goes wrong now and then.

    Attributes:
        kind: what goes wrong; `KINDS` of the module that causes it says what and why a scheduler has to bear it.
        at, until: virtual seconds; for what happens once, `until` is `at`.
        target: the replica or server that is concerned; empty for each.
        chance: that it happens, each time when it could.
        seconds: how long it lasts each time, if that matters.
        detail: what else the kind needs: a status, a method.
    """

    kind: str
    at: float
    until: float
    target: str = ""
    chance: float = 1.0
    seconds: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        when = f"{self.at:.1f} s" if self.until <= self.at else f"{self.at:.1f}-{self.until:.1f} s"
        extra = [f"{self.seconds:g} s"] * bool(self.seconds) + [self.detail] * bool(self.detail)
        chance = "" if self.chance >= 1 else f", chance {self.chance:.2f}"
        return f"{when}: {self.kind} {' '.join(extra)} ({self.target or 'any'}{chance})"


class Deed(Protocol):
    """What somebody does at a moment; `deeds` has all of them. Its text is a line of the history."""

    @property
    def at(self) -> float:
        """Virtual seconds."""

    def done_in(self, world: Any, /) -> None:
        """Do it in a `World`."""


@attrs.frozen(kw_only=True)
class Scenario:
    """
    One simulation.

    Attributes:
        seed: of all chance that is not a value here.
        replicas: how many of the scheduler run.
        api_servers: in front of one store.
        fenced: whether the admission policy on Bindings is installed.
        lease: duration, renew deadline and retry period in seconds.
        page_size: the most objects that a page of a list has; 0 for as many as the client asks for.
        bind_concurrency: first tries of Bindings at once.
        controllers: whether Jobs and Deployments have controllers.
        nodes: name and instance type.
        deeds: in the order of their times.
        faults: `Fault`s; those of processes happen once.
        claims: nodes give devices by claims, and pods ask for them so.
        turn_after: the bound of the profile's turns; 0 for none.
        per_look: virtual seconds that pass while code looks at the clock (`clock`): how slow the machines are.
        quiet_at: when the last fault has ended.
        ends_at: virtual seconds.
    """

    seed: int
    replicas: int = 2
    api_servers: int = 1
    fenced: bool = True
    lease: tuple[float, float, float] = (15.0, 10.0, 2.0)
    page_size: int = 0
    bind_concurrency: int = 48
    controllers: bool = False
    nodes: tuple[tuple[str, str], ...] = ()
    deeds: tuple[Deed, ...] = ()
    faults: tuple[Fault, ...] = ()
    claims: bool = False
    turn_after: float = 0.0
    per_look: float = 0.0
    quiet_at: float = 60.0
    ends_at: float = 120.0


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
