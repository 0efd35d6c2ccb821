"""
What many objects have in common, kept once: names, labels, amounts.

Pods of one workload and nodes of one type differ in little, and a cluster has tens of thousands of them. Equal texts,
and equal amounts, become one object each, in a bounded number of bytes.
"""

from collections.abc import Mapping

from neuron_scheduler.kube.objects.byte_bounded_memo import byte_bounded_memo
from neuron_scheduler.model.quantity import milli, whole
from neuron_scheduler.model.resources import CPU, NOTHING, Resources
from neuron_scheduler.model.selectors import NO_LABELS

interned = byte_bounded_memo(most=16 << 20, longest=512)(str)
"""Return the one object for this text; bounded, unlike `sys.intern` on some releases."""


def labels(mapping: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return labels whose keys and values are shared with all others."""
    return {interned(key): interned(value) for key, value in mapping.items()} if mapping else NO_LABELS


def amounts(quantities: Mapping[str, str | int] | None) -> Resources:
    """
    Return amounts by resource name without zeros.

    Raises:
        ValueError: an amount is no quantity, or negative.
    """
    if not quantities:
        return NOTHING
    resources = {}
    for name, quantity in quantities.items():
        amount = milli(str(quantity)) if name == CPU else whole(str(quantity))
        if amount < 0:
            raise ValueError(f"{name} is negative: {quantity}")
        if amount:
            resources[interned(name)] = amount
    return resources


@byte_bounded_memo()
def shared(pairs: tuple[tuple[str, int], ...]) -> Resources:
    """Return the one mapping of these amounts."""
    return dict(pairs)
