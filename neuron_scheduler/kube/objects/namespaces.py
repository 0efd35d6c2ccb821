"""
Namespaces -> `model.Namespace`, and how they are listed and watched.

Only their labels are read, for the namespace selectors of affinity terms.
"""

from operator import attrgetter, eq
from typing import Final

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Codec, Decoded, interned, labels
from neuron_scheduler.kube.objects.resource import Resource
from neuron_scheduler.model.namespace import Namespace


def _namespace(found: wire.Namespace) -> Decoded[Namespace]:
    meta = found.metadata
    value = Namespace(uid=meta.uid, name=interned(meta.name), labels=labels(meta.labels))
    return Decoded(meta.name, meta.uid, meta.resource_version, value)


NAMESPACES: Final[Resource[Namespace]] = Resource(
    path="/api/v1/namespaces",
    codec=Codec("Namespace", wire.Namespace, _namespace),
    same=eq,
    order=attrgetter("name", "uid"),
)
