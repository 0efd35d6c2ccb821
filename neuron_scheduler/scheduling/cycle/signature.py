"""
The signature of a pod: what the filters look at in it.

Pods of one signature get the same answer from the same cluster, unless one of them has a nomination. A field is part of
it unless it is known that no filter reads it. Upstream: `PodSignature`, `SignPod` in `pkg/scheduler/framework`.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

import attrs

from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints, Pod
from neuron_scheduler.scheduling.plugins.pod_fields import PodField
from neuron_scheduler.scheduling.plugins.registry import LOCAL, PLUGINS, PREFERENCES

Signature = tuple[Any, ...]

_POD: Final = attrs.fields(Pod)
IDENTITY_AND_STATUS: Final = frozenset(
    field.name
    for field in (
        _POD.uid,
        _POD.name,  # pods with generic ephemeral volumes differ by the names of the claims
        _POD.resource_version,
        _POD.created,
        _POD.owner,
        _POD.allocation,
        _POD.annotations_size,
        _POD.scheduled,
        _POD.started,
        _POD.admitted,
        _POD.nominated_node_name,
        _POD.observed_generation,
        _POD.preempted,
        _POD.claims,  # what they mean is in `neuron`, `gates`, `refusal` and `constraints.claimed_on`
        _POD.open_claims,
        _POD.devices,
        _POD.parts,
    )
)
"""Fields that no plugin reads to refuse a pod or a node."""
_READ_BY_OTHERS: Final = frozenset({_POD.namespace.name, _POD.labels.name, _POD.group.name, _POD.rank.name})
"""Fields by which other pods refer to it, plugins that look at other pods, and plans for groups."""
_PREFERRED: Final = frozenset(
    field.attribute
    for field in PodField
    if any(field in preference.reads for preference in PREFERENCES.values())
    and not any(field in plugin.reads for plugin in PLUGINS)
)
"""Fields that only preferences read."""
_LEFT_OUT: Final = IDENTITY_AND_STATUS | _READ_BY_OTHERS | _PREFERRED

_of_pod: Final = attrgetter(*(field.name for field in _POD if field.name not in _LEFT_OUT))
_of_constraints: Final = attrgetter(*(field.name for field in attrs.fields(Constraints) if field.name not in _LEFT_OUT))


def signature_of(pod: Pod, plugins: frozenset[str]) -> Signature:
    """Return what a pod that these plugins refused shares with others that they refuse as well."""
    signature = tuple(map(_hashable, _of_pod(pod)))
    if plugins <= LOCAL:
        return signature
    return (*signature, pod.namespace, frozenset(pod.labels.items()))


def _hashable(value: Any) -> Any:
    if value is NO_CONSTRAINTS:
        return ()
    if isinstance(value, Constraints):
        return tuple(map(_hashable, _of_constraints(value)))
    return frozenset(value.items()) if isinstance(value, Mapping) else value
