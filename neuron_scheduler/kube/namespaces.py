"""
Namespaces -> `model.Namespace`, and how they are listed and watched.

Only their labels are read, for the namespace selectors of affinity terms.
"""

from operator import attrgetter, eq
from typing import Final

import msgspec

from neuron_scheduler.kube import wire
from neuron_scheduler.kube.codec import Decoded, Encoded, Malformed, identity_of, interned, labels
from neuron_scheduler.kube.informer import Resource
from neuron_scheduler.model.namespace import Namespace

_NAMESPACE: Final = msgspec.json.Decoder(wire.Namespace)


def decode_namespace(encoded: Encoded) -> Decoded[Namespace]:
    """Return the namespace; never raises."""
    try:
        meta = _NAMESPACE.decode(encoded).metadata
    except msgspec.MsgspecError as error:
        known = identity_of(encoded)
        reason = Malformed("Namespace", known.name, str(error), known.uid)
        return Decoded(known.name, known.uid, known.resource_version, reason)
    value = Namespace(uid=meta.uid, name=interned(meta.name), labels=labels(meta.labels))
    return Decoded(meta.name, meta.uid, meta.resource_version, value)


NAMESPACES: Final[Resource[Namespace]] = Resource(
    path="/api/v1/namespaces", decode=decode_namespace, same=eq, order=attrgetter("name", "uid")
)
