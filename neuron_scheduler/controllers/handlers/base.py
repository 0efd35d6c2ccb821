"""
What the handlers of all watched kinds share: an object that cannot be read is counted, logged once, and forgotten when
it can be read again.

The object store keeps the last object that could be read, so without more nothing changes in the cluster: an object
that was never readable is absent, any other stays as it was. A kind for which that is not enough says so in
`take_unreadable` (pods: what a pod on a node uses is unknown). Refuses to know any kind.
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
    Handles the watch events of one resource, or of several that mean the same.

    Attributes:
        resource: plural name, for the count of malformed objects.
        MALFORMED: the log line about an object that cannot be read.
    """

    MALFORMED: ClassVar[str] = "Skipping malformed object"

    metrics: Metrics
    resource: str
    _warned: logs.Once = attrs.field(factory=logs.Once, init=False)

    @abstractmethod
    def added(self, new: T, /) -> None:
        """Handle an object that was not there before."""

    @abstractmethod
    def updated(self, old: T, new: T, /) -> None:
        """Handle a change of an object."""

    @abstractmethod
    def deleted(self, old: T, /) -> None:
        """Handle the end of an object, given as it was last read."""

    def malformed(self, report: Malformed) -> None:
        """Count and log an object that cannot be read; its last good state, if any, is kept."""
        self.metrics.malformed(self.resource)
        self.take_unreadable(report)
        if self._warned((report.kind, report.key)):
            log.warning(self.MALFORMED, **self.identity(report), err=report.reason)
            self.logged(report)

    def mended(self, report: Malformed) -> None:
        """Log an object again when it becomes unreadable again: it can be read, or is gone."""
        self._warned.forget((report.kind, report.key))

    def take_unreadable(self, report: Malformed) -> None:
        """Change what an object that cannot be read changes in cluster and queue; called before it is logged."""

    def logged(self, report: Malformed) -> None:
        """Follow the one log line about an object that cannot be read."""

    def identity(self, report: Malformed) -> dict[str, Any]:
        """Return the keys of the log line that name the object."""
        return {"kind": report.kind, "key": report.key}
