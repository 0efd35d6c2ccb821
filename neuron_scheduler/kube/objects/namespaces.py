"""
Namespaces -> `model.Namespace`, and how they are listed and watched.

Only their labels are read, for the namespace selectors of affinity terms.
"""

from operator import attrgetter
from typing import Final

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.interning import interned, labels
from neuron_scheduler.model.namespace import Namespace


class _Namespace(wire.Wire):
    """A namespace."""

    metadata: wire.ObjectMeta


def _read(namespace: _Namespace) -> Namespace:
    meta = namespace.metadata
    return Namespace(uid=meta.uid, name=interned(meta.name), labels=labels(meta.labels))


NAMESPACES: Final[Resource[Namespace]] = Resource(
    path="/api/v1/namespaces",
    kind="Namespace",
    shape=_Namespace,
    read=_read,
    order=attrgetter("name", "uid"),
)
