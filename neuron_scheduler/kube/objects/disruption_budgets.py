"""PodDisruptionBudgets -> `model.DisruptionBudget`, and how they are listed and watched."""

from operator import attrgetter
from typing import Final

import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.interning import interned
from neuron_scheduler.kube.objects.selectors import label_selector
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.selectors import LabelSelector


class _Spec(wire.Wire):
    """`spec` of a budget."""

    selector: wire.Selector | None = None


class _Status(wire.Wire):
    """`status` of a budget."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, msgspec.Raw] | None = None


class _Budget(wire.Wire):
    """A PodDisruptionBudget."""

    metadata: wire.ObjectMeta
    spec: _Spec | None = None
    status: _Status | None = None


def _read(budget: _Budget) -> DisruptionBudget:
    meta, status = budget.metadata, budget.status or _Status()
    return DisruptionBudget(
        uid=meta.uid,
        namespace=interned(meta.namespace),
        name=interned(meta.name),
        selector=_selector(budget.spec.selector if budget.spec else None),
        allowed=status.disruptions_allowed,
        disrupted=frozenset(status.disrupted_pods or ()),
    )


def _selector(selector: wire.Selector | None) -> LabelSelector | None:
    """Return the selector; one that cannot be read matches nothing, as upstream."""
    try:
        return label_selector(selector)
    except ValueError:
        return None


BUDGETS: Final[Resource[DisruptionBudget]] = Resource(
    path="/apis/policy/v1/poddisruptionbudgets",
    kind="PodDisruptionBudget",
    shape=_Budget,
    read=_read,
    order=attrgetter("namespace", "name", "uid"),
)
