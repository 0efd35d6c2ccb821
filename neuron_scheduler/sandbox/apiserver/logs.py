"""
What containers have written: kept for each pod, bounded, and read as `kubectl logs` asks.

A pod's containers share one log. A restart begins a new one, and the one before stays readable (`--previous`).
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio
import attrs

from neuron_scheduler.sandbox.apiserver import metadata
from neuron_scheduler.sandbox.apiserver.status import bad_request
from neuron_scheduler.sandbox.apiserver.store import Object

SIMULATED: Final = "The sandbox simulates this container: nothing runs in it, and it writes no log."
_KEPT: Final = 20_000  # lines of a log


@attrs.frozen
class Line:
    """A line and when it was written."""

    moment: datetime
    text: str


@attrs.define(eq=False)
class Log:
    """The lines of one run of a pod's containers."""

    _lines: deque[Line] = attrs.field(factory=lambda: deque(maxlen=_KEPT))
    _written: int = 0
    _ended: bool = False
    _changed: anyio.Event = attrs.field(factory=anyio.Event)

    def write(self, text: str) -> None:
        """Add a line."""
        self._lines.append(Line(metadata.now(), text))
        self._written += 1
        self._notify()

    def end(self) -> None:
        """Say that no more lines come."""
        self._ended = True
        self._notify()

    def lines(self) -> list[Line]:
        """Return the kept lines."""
        return list(self._lines)

    @property
    def written(self) -> int:
        """How many lines were written so far, the dropped ones included."""
        return self._written

    async def follow(self, seen: int) -> AsyncIterator[Line]:
        """Yield the lines after the first `seen` ones as they are written, until the end."""
        while True:
            fresh = min(self._written - seen, len(self._lines))
            for line in self.lines()[len(self._lines) - fresh :]:
                yield line
            seen += fresh
            if self._ended and seen >= self._written:
                return
            if seen >= self._written:
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@attrs.define(eq=False)
class Logs:
    """The present log and the one before, of each pod by uid."""

    _present: dict[str, Log] = attrs.field(factory=dict)
    _previous: dict[str, Log] = attrs.field(factory=dict)

    def begin(self, uid: str) -> Log:
        """Return the log of a new run."""
        if uid in self._present:
            self._present[uid].end()
            self._previous[uid] = self._present[uid]
        self._present[uid] = Log()
        return self._present[uid]

    def forget(self, uid: str) -> None:
        """Drop the logs of a pod that is gone; readers that follow it come to the end."""
        for logs in (self._present, self._previous):
            if uid in logs:
                logs.pop(uid).end()

    def of(self, pod: Object, query: Mapping[str, str]) -> Log:
        """
        Return the log that a request asks for.

        Raises:
            StatusError: 400, the container is unknown or not named, has not started, or was never restarted.
        """
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = query.get("container", "")
        if not container and len(names) > 1:
            raise bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]")
        if container and container not in names:
            raise bad_request(f"container {container} is not valid for pod {name}")
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {name} does not have a host assigned")
        if pod["status"].get("phase") == "Pending":
            raise bad_request(
                f'container "{container or names[0]}" in pod "{name}" is waiting to start: ContainerCreating'
            )
        if query.get("previous") in {"true", "1"}:
            if uid not in self._previous:
                raise bad_request(f'previous terminated container "{container or names[0]}" in pod "{name}" not found')
            return self._previous[uid]
        return self._present.get(uid) or _simulated()


def selected(log: Log, query: Mapping[str, str], now: datetime) -> list[Line]:
    """
    Return the lines that `sinceSeconds`, `sinceTime` and `tailLines` ask for.

    Raises:
        StatusError: 400, one of them cannot be read.
    """
    try:
        since = datetime.min.replace(tzinfo=UTC)
        if "sinceTime" in query:
            since = metadata.moment(query["sinceTime"])
        if "sinceSeconds" in query:
            since = now - timedelta(seconds=int(query["sinceSeconds"]))
        lines = [line for line in log.lines() if line.moment >= since]
        if "tailLines" in query:
            count = int(query["tailLines"])
            lines = lines[-count:] if count else []
    except ValueError as error:
        raise bad_request(f"{query}: {error}") from error
    return lines


def printer(query: Mapping[str, str]) -> Callable[[Line], bytes]:
    """Return what makes a line of the answer: with its time if `timestamps` asks for it."""
    if query.get("timestamps") in {"true", "1"}:
        return lambda line: f"{line.moment.strftime('%Y-%m-%dT%H:%M:%S.%fZ')} {line.text}\n".encode()
    return lambda line: f"{line.text}\n".encode()


def _simulated() -> Log:
    log = Log()
    log.write(SIMULATED)
    log.end()
    return log
