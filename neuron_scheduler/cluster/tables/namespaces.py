"""
The labels of namespaces, and which namespaces a selector selects.

A selector is resolved to a set of names before it becomes part of an index's definition, so a change of labels leads to
another definition and no index becomes wrong. The resolved sets are updated with each namespace.
"""

from collections.abc import Mapping
from typing import Self

import attrs

from neuron_scheduler.model.namespace import Namespace
from neuron_scheduler.model.selectors import NO_LABELS, LabelSelector

_MOST_SELECTORS = 1024


@attrs.define(eq=False)
class NamespaceTable:
    """Namespaces by name."""

    _labels: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    _selected: dict[LabelSelector, frozenset[str]] = attrs.field(factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self._labels

    def put(self, namespace: Namespace) -> None:
        """Add or replace a namespace."""
        self._labels[namespace.name] = namespace.labels
        for selector, names in self._selected.items():
            if selector.matches(namespace.labels):
                self._selected[selector] = names if namespace.name in names else names | {namespace.name}
            else:
                self._selected[selector] = names - {namespace.name} if namespace.name in names else names

    def remove(self, name: str) -> None:
        """Remove a namespace."""
        if self._labels.pop(name, None) is not None:
            for selector, names in self._selected.items():
                self._selected[selector] = names - {name} if name in names else names

    def labels(self, name: str) -> Mapping[str, str]:
        """Return a namespace's labels; none if it is not known, as upstream (`GetNamespaceLabelsSnapshot`)."""
        return self._labels.get(name, NO_LABELS)

    def selected(self, selector: LabelSelector) -> frozenset[str]:
        """Return the names of the known namespaces that match."""
        names = self._selected.get(selector)
        if names is None:
            if len(self._selected) >= _MOST_SELECTORS:
                del self._selected[next(iter(self._selected))]
            names = frozenset(name for name, labels in self._labels.items() if selector.matches(labels))
            self._selected[selector] = names
        return names

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(labels=dict(self._labels), selected=dict(self._selected))
