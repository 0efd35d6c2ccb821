"""
Runs the controllers: after each change of the store, until nothing is left to do, and once a second for deadlines.
"""

from typing import Final, Protocol

import anyio
import anyio.lowlevel
import attrs

from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.status import StatusError
from neuron_scheduler.sandbox.controllers.daemon_sets import DaemonSets
from neuron_scheduler.sandbox.controllers.deployments import Deployments
from neuron_scheduler.sandbox.controllers.garbage import Garbage
from neuron_scheduler.sandbox.controllers.jobs import Jobs
from neuron_scheduler.sandbox.controllers.kube_scheduler import KubeScheduler
from neuron_scheduler.sandbox.controllers.replica_sets import ReplicaSets
from neuron_scheduler.telemetry import logs

log = logs.logger(__name__)

_TICK: Final = 1.0  # seconds
_OUTRUN: Final = frozenset({404, 409})


class _Controller(Protocol):
    def sync(self) -> None: ...


@attrs.define(eq=False)
class Controllers:
    """All controllers over one registry, and if wanted the stand-in for kube-scheduler."""

    registry: Registry
    kube_scheduler: bool
    _all: tuple[_Controller, ...] = attrs.field(init=False)
    _reported: set[str] = attrs.field(factory=set)

    def __attrs_post_init__(self) -> None:
        kinds = (Deployments, ReplicaSets, DaemonSets, Jobs, Garbage, *([KubeScheduler] if self.kube_scheduler else []))
        self._all = tuple(kind(self.registry) for kind in kinds)

    async def run(self) -> None:
        """Follow the store without end."""
        store = self.registry.store
        while True:
            version = store.version
            for controller in self._all:
                self._sync(controller)
            if store.version != version:
                await anyio.lowlevel.checkpoint()
                continue
            with anyio.move_on_after(_TICK):
                await store.changed()

    def _sync(self, controller: _Controller) -> None:
        """Let a controller act. An object that it cannot read stops it, once a line, and never the others."""
        try:
            controller.sync()
        except StatusError as error:
            if error.code not in _OUTRUN:  # else an object changed within the step: the next round sees it
                raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if repr(error) not in self._reported:
                self._reported.add(repr(error))
                log.error("A controller of the sandbox cannot go on", controller=type(controller).__name__, exc=error)
