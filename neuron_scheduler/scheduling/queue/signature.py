"""
What the filters look at in a pod: those that have it in common are refused together.

Upstream: `PodSignature`, `SignPod` in `pkg/scheduler/framework`, there for batches of new pods. Pods of one signature
get the same answer from the same cluster, except for what is promised to one of them.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

import attrs

from neuron_scheduler.model.pod import NO_CONSTRAINTS, Constraints, Pod
from neuron_scheduler.scheduling.queue.hints import LOCAL

Signature = tuple[Any, ...]

UNREAD: Final = frozenset(
    {
        "uid", "name", "resource_version", "created", "owner", "allocation", "annotations_size", "scheduled", "started",
        "admitted", "nominated_node_name", "observed_generation", "preempted", "images", "volume_images",
    }
)  # fmt: skip
"""Fields of a pod that no filter reads. A claim for a generic ephemeral volume has the pod's own name."""
_READ_BY_OTHERS: Final = frozenset({"namespace", "labels"})
"""Fields by which other pods, and plugins that look at other pods, know it."""
_PREFERENCES: Final = frozenset({"preferred_terms", "preferred_affinity", "preferred_anti_affinity"})

_of_pod: Final = attrgetter(*(each.name for each in attrs.fields(Pod) if each.name not in UNREAD | _READ_BY_OTHERS))
_of_constraints: Final = attrgetter(*(each.name for each in attrs.fields(Constraints) if each.name not in _PREFERENCES))


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
