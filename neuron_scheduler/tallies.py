"""
Counters and histograms for what happens several times for every pod.

The library's own take a lock and a dozen calls for each number; here it is one addition, and Prometheus' words are
found when somebody looks. Refuses what nobody here asks of them: gauges, exemplars, being shared by threads.
"""

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate
from math import inf

import attrs
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString


@attrs.define(eq=False)
class Counter:
    """
    How often something happened, by the values of labels; without labels it is there from the start, with zero.

    Attributes:
        name: without `_total`.
    """

    name: str
    text: str
    labels: tuple[str, ...] = ()
    _numbers: dict[tuple[str, ...], int] = attrs.field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        if not self.labels:
            self.show()

    def show(self, *values: str) -> None:
        """Be there for these values of the labels before anything happens."""
        self._numbers.setdefault(values, 0)

    def inc(self, *values: str) -> None:
        """Count once more."""
        self._numbers[values] = self._numbers.get(values, 0) + 1

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry need not look for names that are there twice."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the one family."""
        family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        for values, number in self._numbers.items():
            family.add_metric(values, number)
        yield family


@attrs.define(eq=False)
class Histogram:
    """
    How amounts are distributed, by the values of labels.

    Attributes:
        bounds: upper bounds of the buckets but for the last, which has none.
    """

    name: str
    text: str
    bounds: tuple[float, ...]
    labels: tuple[str, ...] = ()
    _series: dict[tuple[str, ...], list[float]] = attrs.field(factory=dict, init=False)
    """How many amounts each bucket has, and the sum of all amounts."""

    def __attrs_post_init__(self) -> None:
        if not self.labels:
            self.show()

    def show(self, *values: str) -> list[float]:
        """Be there for these values of the labels before anything happens."""
        return self._series.setdefault(values, [0] * (len(self.bounds) + 2))

    def observe(self, amount: float, *values: str) -> None:
        """Take one amount."""
        series = self._series.get(values) or self.show(*values)
        series[bisect_left(self.bounds, amount)] += 1
        series[-1] += amount

    def describe(self) -> Iterable[Metric]:
        """Return nothing, as counters do."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield the one family."""
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        bounds = list(map(floatToGoString, (*self.bounds, inf)))
        for values, (*counts, total) in self._series.items():
            family.add_metric(values, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family
