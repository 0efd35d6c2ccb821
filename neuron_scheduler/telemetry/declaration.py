"""
How a class declares its counters and histograms: one attrs field each, which says name, help text and labels.

`fill` turns the fields of an object into metrics of a registry, in the order of their declaration. Does not depend on
any particular metric.
"""

from collections.abc import Callable
from functools import cache
from itertools import accumulate, repeat
from operator import mul
from typing import Any

import attrs
from prometheus_client import CollectorRegistry, Counter, Histogram


def counter(name: str, text: str, *labels: str) -> Any:
    """Declare a function that adds one to the counter; its arguments are the values of the labels."""

    def create(registry: CollectorRegistry) -> Callable[..., None]:
        if not labels:
            return Counter(name, text, registry=registry).inc
        child = cache(Counter(name, text, labels, registry=registry).labels)

        def count(*values: str) -> None:
            child(*values).inc()

        return count

    return _field(create)


def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Any:
    """Declare a function that puts its argument into the histogram."""
    return _field(lambda registry: Histogram(name, text, buckets=buckets, registry=registry).observe)


def counters(name: str, text: str, *labels: str) -> Any:
    """Declare a function from the values of the labels to the counter that has them."""
    return _field(lambda registry: cache(Counter(name, text, labels, registry=registry).labels))


def histograms(name: str, text: str, *labels: str, buckets: tuple[float, ...], large: bool = False) -> Any:
    """Declare a function from the values of the labels to the histogram that has them; `large`: with many series."""

    def create(registry: CollectorRegistry) -> Callable[..., Any]:
        return cache(Histogram(name, text, labels, buckets=buckets, registry=registry).labels)

    return _field(create, large=large)


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of buckets as `prometheus.ExponentialBuckets` does."""
    return tuple(accumulate(repeat(factor, count - 1), mul, initial=start))  # in its order, for equal labels


def fill(declaring: Any, registry: CollectorRegistry, large: CollectorRegistry) -> None:
    """Create the metrics that an object's class declares, in one of two registries, and set its fields."""
    for field in attrs.fields(type(declaring)):
        if "metric" in field.metadata:
            chosen = large if field.metadata["large"] else registry
            setattr(declaring, field.name, field.metadata["metric"](chosen))


def _field(create: Callable[[CollectorRegistry], Callable[..., Any]], *, large: bool = False) -> Any:
    return attrs.field(init=False, metadata={"metric": create, "large": large})
