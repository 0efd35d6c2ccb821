"""
The text of metrics with many series, written a few lines at a time before a scrape.

A histogram of each plugin is hundreds of lines, and each takes ten microseconds: together longer than the event loop
may be held up. The lines of a histogram without exemplars, and with no quote in its help text, are the same in
both text formats. Does not decide which metrics are large.
"""

from collections.abc import Iterator
from typing import Final

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

LINES_A_STEP: Final = 100
_END: Final = b"# EOF\n"  # of an exposition in OpenMetrics


@attrs.define(eq=False)
class StepwiseText:
    """
    The text of a registry's histograms.

    Attributes:
        registry: of histograms only.
    """

    registry: CollectorRegistry = attrs.field(factory=CollectorRegistry)
    _written: bytes | None = attrs.field(default=None, init=False)

    def prepared(self) -> Iterator[None]:
        """Write the text; yields when other tasks may run."""
        parts: list[bytes] = []
        for part in self._parts():
            parts.append(part)
            yield
        self._written = b"".join(parts)

    def added_to(self, exposition: bytes) -> bytes:
        """Return an exposition with the text as last prepared, or as it is now if it never was."""
        text = b"".join(self._parts()) if self._written is None else self._written
        if exposition.endswith(_END):
            return exposition.removesuffix(_END) + text + _END
        return exposition + text

    def _parts(self) -> Iterator[bytes]:
        for metric in self.registry.collect():
            for first in range(0, max(1, len(metric.samples)), LINES_A_STEP):
                part = Metric(metric.name, metric.documentation, metric.type)
                part.samples = metric.samples[first : first + LINES_A_STEP]
                written = generate_latest(_only(part))
                yield written if not first else written.split(b"\n", 2)[2]  # the name and the type come once


def _only(metric: Metric) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Only(metric))
    return registry


@attrs.define(eq=False)
class _Only(Collector):
    """Collects one metric."""

    _metric: Metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric
