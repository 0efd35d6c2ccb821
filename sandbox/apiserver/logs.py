"""
What containers have written: kept for each pod, and read as `kubectl logs` asks.

A pod's containers share one log, and a pod has one run. Of the options, `tailLines` and `follow` have an effect.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final

import anyio
import attrs

from sandbox.apiserver.status import bad_request
from sandbox.apiserver.store import Object

SIMULATED: Final = "The sandbox simulates this container: nothing runs in it, and it writes no log."


@attrs.define(eq=False)
class Log:
    """
    What a pod's containers have written.

    Attributes:
        lines: all of them so far.
    """

    lines: list[str] = attrs.field(factory=list)
    _ended: bool = False
    _changed: anyio.Event = attrs.field(factory=anyio.Event)

    def write(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)
        self._notify()

    def end(self) -> None:
        """Say that no more lines come."""
        self._ended = True
        self._notify()

    async def follow(self, seen: int) -> AsyncIterator[str]:
        """Yield the lines after the first `seen` ones as they are written, until the end."""
        while True:
            fresh = self.lines[seen:]
            for line in fresh:
                yield line
            seen += len(fresh)
            if not fresh and self._ended:
                return
            if not fresh:
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


@attrs.define(eq=False)
class Logs:
    """The log of each pod by uid."""

    _logs: dict[str, Log] = attrs.field(factory=dict)

    def begin(self, uid: str) -> Log:
        """Return the log of a pod that begins to run."""
        return self._logs.setdefault(uid, Log())

    def forget(self, uid: str) -> None:
        """Drop the log of a pod that is gone; readers that follow it come to the end."""
        if uid in self._logs:
            self._logs.pop(uid).end()

    def of(self, pod: Object, query: Mapping[str, str]) -> Log:
        """
        Return the log that a request asks for.

        Raises:
            StatusError: 400, the container is unknown or has not started.
        """
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        names = [container["name"] for container in pod["spec"]["containers"]]
        container = query.get("container") or names[0]
        if container not in names:
            raise bad_request(f"container {container} is not valid for pod {name}")
        if not pod["spec"].get("nodeName"):
            raise bad_request(f"pod {name} does not have a host assigned")
        if pod["status"].get("phase") == "Pending":
            raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')
        return self._logs.get(uid) or _simulated()


def selected(log: Log, query: Mapping[str, str]) -> list[str]:
    """
    Return the lines that `tailLines` asks for; all without it.

    Raises:
        StatusError: 400, another choice of lines is asked for.
    """
    for unknown in ("sinceSeconds", "sinceTime", "previous", "timestamps"):
        if query.get(unknown) not in {None, "", "false"}:
            raise bad_request(f"the sandbox keeps no times of lines, and no logs of earlier runs: {unknown}")
    count = int(query.get("tailLines", len(log.lines)))
    return log.lines[-count:] if count else []


def _simulated() -> Log:
    log = Log()
    log.write(SIMULATED)
    log.end()
    return log
