"""
Runs the controllers: after each change of the store, until nothing is left to do, and once a second for deadlines.
"""

import logging
from collections.abc import Callable
from typing import Final

import anyio
import anyio.lowlevel
import attrs

from sandbox.apiserver.registry import Registry
from sandbox.apiserver.status import StatusError
from sandbox.controllers.deployments import Deployments, ReplicaSets
from sandbox.controllers.garbage import Garbage
from sandbox.controllers.jobs import Jobs

_LOG: Final = logging.getLogger(__name__)

_TICK: Final = 1.0  # seconds
_OUTRUN: Final = frozenset({404, 409})


@attrs.define(eq=False)
class Controllers:
    """All controllers over one registry."""

    registry: Registry
    _steps: dict[str, Callable[[], None]] = attrs.field(init=False)
    _reported: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        self._steps = {
            "Deployments": Deployments(self.registry).sync,
            "ReplicaSets": ReplicaSets(self.registry).sync,
            "Jobs": Jobs(self.registry).sync,
            "Garbage": Garbage(self.registry).sync,
        }

    async def run(self) -> None:
        """Follow the store without end."""
        store = self.registry.store
        while True:
            version = store.version
            for name, step in self._steps.items():
                self._act(name, step)
            if store.version != version:
                await anyio.lowlevel.checkpoint()
                continue
            with anyio.move_on_after(_TICK):
                await store.changed()

    def _act(self, name: str, step: Callable[[], None]) -> None:
        """Let a controller act. An object that it cannot read stops it, once a line, and never the others."""
        try:
            step()
        except (StatusError, AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, StatusError) and error.code in _OUTRUN:
                return  # an object changed within the step: the next round sees it
            if repr(error) not in self._reported:
                self._reported.add(repr(error))
                _LOG.error("%s of the sandbox cannot go on: %r", name, error)
