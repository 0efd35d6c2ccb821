"""
What the handlers of all watched kinds share: an object that cannot be read is counted, logged once, and forgotten when
it can be read again.

The cluster keeps the last state that could be read; an object that was never readable is absent. A kind for which that
is not enough overrides `take_unreadable`: the devices of a pod on a node are unknown then. Does not depend on a kind.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.metrics import Metrics

log = logs.logger(__name__)

T = TypeVar("T")


@attrs.define(eq=False, kw_only=True)
class ObjectHandler(ABC, Generic[T]):
    """
    Handles the watch events of one resource.

    Attributes:
        resource: the label of its malformed objects in the metrics: mostly its plural name.
        MALFORMED: the log line about an object that cannot be read.
        NAMED: the key under which that line names the object; empty where it says the kind, too.
    """

    MALFORMED: ClassVar[str] = "Skipping malformed object"
    NAMED: ClassVar[str] = ""

    metrics: Metrics
    resource: str
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    @abstractmethod
    def added(self, new: T, /) -> None:
        """Handle an object that was not there before."""

    def updated(self, _: T, new: T, /) -> None:
        """Handle a change of an object; a kind of which only the present state counts takes it as a new one."""
        self.added(new)

    @abstractmethod
    def deleted(self, old: T, /) -> None:
        """Handle the end of an object, given as it was last read."""

    def malformed(self, malformed: Malformed) -> None:
        """Count and log an object that cannot be read; its last good state, if any, is kept."""
        self.metrics.malformed(self.resource)
        self.take_unreadable(malformed)
        if self._warned(malformed.key):
            log.warning(self.MALFORMED, **self.identity(malformed), err=malformed.reason)
            self.logged(malformed)

    def no_longer_malformed(self, malformed: Malformed) -> None:
        """Forget an object that can be read again or is gone; the next time it is logged again."""
        self._warned.forget(malformed.key)

    def take_unreadable(self, malformed: Malformed) -> None:
        """Apply what an unreadable object means to cluster and queue; called before it is logged."""

    def logged(self, malformed: Malformed) -> None:
        """Report an unreadable object elsewhere too; called after its one log line."""

    def identity(self, malformed: Malformed) -> dict[str, Any]:
        """Return the keys of the log line that name the object."""
        return {self.NAMED: malformed.key} if self.NAMED else {"kind": malformed.kind, "key": malformed.key}
