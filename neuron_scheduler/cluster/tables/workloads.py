"""
What selects a pod: the Services that send to it and the workload that controls it.

Only selectors are kept; the default spread constraints need them to find the pods that belong together. Upstream:
`plugins/helper/spread.go`. Services are posted under one equality of their selector, so only those that a pod's labels
point to are compared with it.
"""

from typing import Self

import attrs

from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.selectors import LabelSelector, Operator, Requirement
from neuron_scheduler.model.workload import SERVICE, Workload

_Posting = tuple[str, str, str]


@attrs.define(eq=False)
class Workloads:
    """Selectors of Services and controllers by namespace."""

    _controllers: dict[tuple[str, Owner], LabelSelector] = attrs.field(factory=dict)
    _services: dict[_Posting, dict[str, LabelSelector]] = attrs.field(factory=dict)

    def put(self, workload: Workload) -> None:
        """Add a Service or controller; `remove` its old state first."""
        if workload.selector is None or not workload.selector.requirements:
            return
        if workload.kind == SERVICE:
            self._services.setdefault(_posting(workload.namespace, workload.selector), {})[workload.name] = (
                workload.selector
            )
        else:
            self._controllers[_owner(workload)] = workload.selector

    def remove(self, workload: Workload) -> None:
        """Remove a Service or controller, given as it was put."""
        if workload.selector is None or not workload.selector.requirements:
            return
        if workload.kind != SERVICE:
            self._controllers.pop(_owner(workload), None)
            return
        posting = _posting(workload.namespace, workload.selector)
        services = self._services.get(posting, {})
        services.pop(workload.name, None)
        if not services:
            self._services.pop(posting, None)

    def selector_of(self, pod: Pod) -> LabelSelector | None:
        """Return the selector of the pods that belong together with this one; None if nothing selects it."""
        requirements: set[Requirement] = set()
        for key, value in pod.labels.items():
            for selector in self._services.get((pod.namespace, key, value), {}).values():
                if selector.matches(pod.labels):
                    requirements.update(selector.requirements)
        if pod.owner is not None:
            controller = self._controllers.get((pod.namespace, pod.owner))
            requirements.update(controller.requirements if controller is not None else ())
        if not requirements:
            return None
        return LabelSelector(tuple(sorted(requirements, key=lambda r: (r.key, r.operator.value, r.values))))

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(
            controllers=dict(self._controllers),
            services={posting: dict(services) for posting, services in self._services.items()},
        )


def _owner(workload: Workload) -> tuple[str, Owner]:
    return workload.namespace, Owner(workload.api_version, workload.kind, workload.name)


def _posting(namespace: str, selector: LabelSelector) -> _Posting:
    """Return the first equality of a Service's selector, which consists of nothing else."""
    first = next(r for r in selector.requirements if r.operator is Operator.IN)
    return namespace, first.key, first.values[0]
