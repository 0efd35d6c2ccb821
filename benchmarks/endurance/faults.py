"""
What goes wrong between the replicas and the API server during a soak: one fault after the other, chosen by dice.

Every fault ends by itself after some seconds; `end` ends it at once and cuts all connections, so that a connection
which was left silent does not outlast it. Refuses to touch a process: `takeovers` does.
"""

import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

import anyio
import attrs

from tests.end_to_end.workload import LEASE
from tests.faults.answers import CUT, SILENCE, Lines, Page, Refusal, Stream, after_lines
from tests.faults.calls import Call, Condition, at
from tests.faults.proxy import HELD, Behaviour, Fault, Proxy, instead

SECONDS: Final = 3.0  # that a fault lasts: less than a Lease is held without a renewal
ALONE: Final = 10.0  # seconds that the Lease is left alone after a fault of it: two in a row would outlast a renewal
PAUSE: Final = 4.0  # the longest pause between two faults
SILENT: Final = 120.0  # seconds that a silent watch is left alone
MOST: Final = 12  # requests that one fault meets
EXPIRED: Final = {"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "code": 410, "reason": "Expired"}}
GARBLED: Final = b'{"type":"ADDED","object":{"metad'


def _writes(resource: str, method: str = "POST") -> Condition:
    return lambda call: (call.method, call.resource) == (method, resource)


def _lists(call: Call) -> bool:
    return call.method == "GET" and call.name == "" and not call.watches


def _watches(call: Call) -> bool:
    return call.watches


async def _nothing(lines: Lines) -> AsyncIterator[bytes]:
    """Yield no line for longer than a client waits for one."""
    await anyio.sleep(SILENT)
    async for line in lines:
        yield line


BINDING, EVENT, STATUS = _writes("pods/binding"), _writes("events"), _writes("pods/status", "PATCH")
FAULTS: Final[dict[str, tuple[Condition, Behaviour]]] = {
    "Binding: committed, connection cut": (BINDING, Behaviour(CUT)),
    "Binding: committed, no answer": (BINDING, Behaviour(SILENCE)),
    "Binding: not committed, connection cut": (BINDING, instead(CUT)),
    "Binding: sent twice": (BINDING, Behaviour(delivered=2)),
    "Binding: late": (BINDING, HELD),
    "Binding: 401": (BINDING, instead(Refusal(401))),
    "Binding: 404 by a proxy": (BINDING, instead(Page(404))),
    "Binding: 429": (BINDING, instead(Refusal(429, seconds=1))),
    "Binding: 500 after the commit": (BINDING, Behaviour(Refusal(500))),
    "Binding: 503": (BINDING, instead(Refusal(503))),
    "Binding: 502 by a proxy": (BINDING, instead(Page(502))),
    "Event: committed, connection cut": (EVENT, Behaviour(CUT)),
    "Event: 503": (EVENT, instead(Refusal(503))),
    "status of a pod: 500": (STATUS, instead(Refusal(500))),
    "status of a pod: no answer": (STATUS, Behaviour(SILENCE)),
    "watch: 410": (_watches, Behaviour(after_lines(3, json.dumps(EXPIRED).encode() + b"\n"))),
    "watch: cut in a line": (_watches, Behaviour(after_lines(3, GARBLED))),
    "watch: silent": (_watches, Behaviour(Stream(_nothing))),
    "watch: 503": (_watches, instead(Refusal(503))),
    "list: 429": (_lists, instead(Refusal(429, seconds=1))),
    "list: 504": (_lists, instead(Refusal(504))),
    "list: 502 by a proxy": (_lists, instead(Page(502))),
    "Lease: 503": (at(LEASE), instead(Refusal(503))),
    "Lease: committed, connection cut": (at(LEASE), Behaviour(CUT)),
}
ON_THE_LEASE: Final = "Lease"
ON_NEW_CONNECTIONS: Final = ("watch", "list")
"""Faults that only show when something connects again: all connections are cut first."""


@attrs.define(eq=False)
class Faults:
    """
    Causes faults.

    Attributes:
        counts: how many requests each fault has met.
        cuts: how often all connections were cut.
    """

    proxy: Proxy
    dice: random.Random
    clock: Callable[[], float] = time.perf_counter
    counts: Counter[str] = attrs.field(factory=Counter, init=False)
    cuts: int = attrs.field(default=0, init=False)
    paused: bool = attrs.field(default=False, init=False)
    _active: Fault | None = attrs.field(default=None, init=False)
    _alone_until: float = attrs.field(default=0.0, init=False)

    async def run(self) -> None:
        """Cause one fault after the other until cancelled."""
        while True:
            await anyio.sleep(PAUSE * self.dice.random())
            if not self.paused:
                await self._cause(self.dice.choice(self._choices()))

    def end(self) -> None:
        """End what is going wrong, at once."""
        self._over()
        self._cut()

    def _choices(self) -> list[str]:
        """Return what may go wrong now."""
        alone = self.clock() < self._alone_until
        return [name for name in FAULTS if not (alone and name.startswith(ON_THE_LEASE))]

    async def _cause(self, name: str) -> None:
        condition, behaviour = FAULTS[name]
        fault = self._active = self.proxy.add(Fault(condition, behaviour, times=MOST))
        if name.startswith(ON_NEW_CONNECTIONS):
            self._cut()
        with anyio.move_on_after(SECONDS):
            while fault.times and fault is self._active:  # noqa: ASYNC110 - the proxy counts down
                await anyio.sleep(0.1)
        self.counts[name] += int(MOST - fault.times)
        if name.startswith(ON_THE_LEASE):
            self._alone_until = self.clock() + ALONE
        if fault is self._active:
            self._over()

    def _over(self) -> None:
        if self._active is not None:
            self._active.release()
            self.proxy.faults.clear()
            self._active = None

    def _cut(self) -> None:
        self.cuts += 1
        self.proxy.cut()
