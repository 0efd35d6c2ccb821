"""
What selects pods: the labels of namespaces, the Services that send to a pod, the workload that controls it.

A selector of namespaces is resolved to a set of them before it becomes part of an index's definition. So a change of
labels leads to another definition, and no index becomes wrong. The default spread constraints need the selectors of
Services and workloads to find the pods that belong together (`plugins/helper/spread.go`).
"""

from collections.abc import Mapping
from itertools import chain, islice
from typing import Final, Self

import attrs

from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, less
from neuron_scheduler.cluster.index.postings import Postings
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.selecting_kinds import SERVICE, Namespace, Workload
from neuron_scheduler.model.selectors import NO_LABELS, LabelSelector, Operator, Requirement

_NOTHING: Final = Postings()
MOST_SERVICES: Final = 200
"""Services with which a pod is compared: a tenant may have thousands that all select it."""
_Posting = tuple[str, str, str]


@attrs.frozen
class Namespaces:
    """
    Some namespaces, in bits: ten thousand names take half a megabyte, and there may be a thousand such sets.

    Attributes:
        slots: of those that a selector matches.
        names: of those that are named, known or not.
    """

    slots: NodeSet
    names: frozenset[str]
    _slot_of: Mapping[str, Slot] = attrs.field(eq=False, repr=False)

    def __contains__(self, name: str) -> bool:
        slot = self._slot_of.get(name)
        return name in self.names or (slot is not None and self.slots >> slot & 1 == 1)

    def __and__(self, other: "Namespaces") -> "Namespaces":
        names = frozenset(name for name in self.names | other.names if name in self and name in other)
        return Namespaces(self.slots & other.slots, names, self._slot_of)


@attrs.define(eq=False)
class NamespaceTable:
    """Namespaces by name; each has a slot that no other one gets, and the sets of slots by label are kept."""

    _labels: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    _slot_of: dict[str, Slot] = attrs.field(factory=dict)
    _all: NodeSet = NO_NODES
    _by_key: dict[str, Postings] = attrs.field(factory=dict)
    _slots: int = 0

    def put(self, namespace: Namespace) -> None:
        name = namespace.name
        if name not in self._labels:
            self._slot_of[name] = Slot(self._slots)
            self._all |= 1 << self._slot_of[name]
            self._slots += 1
        self._post(self._slot_of[name], self.labels(name), namespace.labels)
        self._labels[name] = namespace.labels

    def remove(self, name: str) -> None:
        if name in self._labels:
            slot = self._slot_of.pop(name)
            self._all ^= 1 << slot
            self._post(slot, self._labels.pop(name), NO_LABELS)

    def labels(self, name: str) -> Mapping[str, str]:
        """Return a namespace's labels; none if it is not known, as upstream (`GetNamespaceLabelsSnapshot`)."""
        return self._labels.get(name, NO_LABELS)

    def select(self, selector: LabelSelector | None, names: frozenset[str]) -> Namespaces:
        """Return the namespaces that match a selector, if there is one, and those with these names."""
        slots = NO_NODES if selector is None else self._all
        for requirement in selector.requirements if selector is not None else ():
            posted = self._by_key.get(requirement.key, _NOTHING)
            match requirement.operator:
                case Operator.IN:
                    slots &= posted.any_of(requirement.values)
                case Operator.NOT_IN:
                    slots = less(slots, posted.any_of(requirement.values))
                case Operator.EXISTS:
                    slots &= posted.keyed
                case _:
                    slots = less(slots, posted.keyed)
        return Namespaces(slots, names, self._slot_of)

    def fork(self) -> Self:
        by_key = {key: posted.fork() for key, posted in self._by_key.items()}
        return type(self)(dict(self._labels), dict(self._slot_of), self._all, by_key, self._slots)

    def _post(self, slot: Slot, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        for key in {*old, *new}:
            posted = self._by_key.setdefault(key, Postings())
            posted.replace(slot, *((labels[key],) if key in labels else () for labels in (old, new)))
            if not posted.keyed:
                del self._by_key[key]


@attrs.define(eq=False)
class Workloads:
    """Selectors of Services and controllers by namespace; Services are posted under one equality of their selector."""

    _controllers: dict[tuple[str, Owner], LabelSelector] = attrs.field(factory=dict)
    _services: CopyOnWrite[_Posting, dict[str, LabelSelector]] = attrs.field(factory=CopyOnWrite)

    def put(self, workload: Workload) -> None:
        """Add a Service or controller; `remove` its old state first."""
        if workload.selector is None or not workload.selector.requirements:
            return
        if workload.kind == SERVICE:
            posting = _posting(workload.namespace, workload.selector)
            self._services.to_change(posting, dict)[workload.name] = workload.selector
        else:
            self._controllers[_owner(workload)] = workload.selector

    def remove(self, workload: Workload) -> None:
        if workload.selector is None or not workload.selector.requirements:
            return
        if workload.kind != SERVICE:
            self._controllers.pop(_owner(workload), None)
            return
        posting = _posting(workload.namespace, workload.selector)
        services = self._services.to_change(posting, dict)
        services.pop(workload.name, None)
        if not services:
            self._services.remove(posting)

    def selector_of(self, pod: Pod) -> LabelSelector | None:
        """Return the selector of the pods that belong together with this one; None if nothing selects it."""
        requirements: set[Requirement] = set()
        posted = (self._services.by_key.get((pod.namespace, *label), {}).values() for label in pod.labels.items())
        for selector in islice(chain.from_iterable(posted), MOST_SERVICES):
            if selector.matches(pod.labels):
                requirements.update(selector.requirements)
        if pod.owner is not None:
            controller = self._controllers.get((pod.namespace, pod.owner))
            requirements.update(controller.requirements if controller is not None else ())
        if not requirements:
            return None
        return LabelSelector(tuple(sorted(requirements, key=lambda r: (r.key, r.operator.value, r.values))))

    def fork(self) -> Self:
        return type(self)(controllers=dict(self._controllers), services=self._services.copy())


def _owner(workload: Workload) -> tuple[str, Owner]:
    return workload.namespace, Owner(workload.api_version, workload.kind, workload.name)


def _posting(namespace: str, selector: LabelSelector) -> _Posting:
    """Return the first equality of a Service's selector, which consists of nothing else."""
    first = next(r for r in selector.requirements if r.operator is Operator.IN)
    return namespace, first.key, first.values[0]
