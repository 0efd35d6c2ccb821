"""
Faults on demand: what happens to the next matching request of a test.

A fault is added with a condition and a number of times; the server takes it when a request matches. Nothing happens
by chance or by the clock: the test releases a held request.
"""

import re
from typing import TypeAlias

import anyio
import attrs

from neuron_scheduler.sandbox.apiserver.status import StatusError


@attrs.frozen
class Answer:
    """Refuse with this status, as HTTP response (429 with a `retry_after`, 500, 410, 403, ...)."""

    error: StatusError


@attrs.frozen
class ErrorEvent:
    """Answer a watch with 200 and, after some events, with an ERROR event that carries this status."""

    error: StatusError
    after: int = 0


@attrs.frozen
class Reset:
    """Reset the connection, before anything is done or (`committed`) when the request has had its effect."""

    committed: bool = False


@attrs.frozen
class Hang:
    """Never answer, before anything is done or (`committed`) when the request has had its effect."""

    committed: bool = False


@attrs.define(eq=False)
class Hold:
    """Wait until the test releases it, then continue normally, even if the client has gone."""

    arrived: anyio.Event = attrs.field(factory=anyio.Event)
    released: anyio.Event = attrs.field(factory=anyio.Event)

    def release(self) -> None:
        """Continue the request."""
        self.released.set()


@attrs.frozen
class Truncate:
    """Break a watch, or the body of an answer, in the middle of a line; a watch after some events."""

    after: int = 0


@attrs.frozen
class Silence:
    """Leave a watch half-open: after some events nothing more is sent, and its timeout is ignored."""

    after: int = 0


@attrs.frozen
class Slow:
    """Answer after so many seconds."""

    seconds: float


Fault: TypeAlias = Answer | ErrorEvent | Reset | Hang | Hold | Truncate | Silence | Slow


@attrs.define
class _Planned:
    fault: Fault
    method: str | None
    path: re.Pattern[str]
    watch: bool | None
    times: int


@attrs.define(eq=False)
class Faults:
    """The faults that are still to come, in the order in which they were added."""

    _planned: list[_Planned] = attrs.field(factory=list)

    def add(
        self, fault: Fault, *, method: str | None = None, path: str = "", watch: bool | None = None, times: int = 1
    ) -> None:
        """
        Plan a fault for the next `times` requests that match.

        Args:
            fault: what happens to them.
            method: `GET`, `POST`, ...; any if it is None.
            path: A regular expression that is searched in the path, without the query.
            watch: only watches, or only other requests; both if it is None.
            times: how many requests.
        """
        self._planned.append(_Planned(fault, method, re.compile(path), watch, times))

    def take(self, *, method: str, path: str, watch: bool) -> Fault | None:
        """Return the fault for this request, if one is planned, and count it as used."""
        for planned in self._planned:
            if planned.method not in {None, method} or planned.watch not in {None, watch}:
                continue
            if planned.path.search(path) is None:
                continue
            planned.times -= 1
            if planned.times <= 0:
                self._planned.remove(planned)
            return planned.fault
        return None

    def clear(self) -> None:
        """Drop all planned faults."""
        self._planned.clear()
