"""
What others have written stays: annotations, labels, conditions, Events, and every part of a spec that is not ours.

A Binding adds our annotations, the node and the condition PodScheduled. A condition that says why a pod waits changes
PodScheduled and the nominated node. Where the author of a change is known, all that a replica writes is judged; where
it is not, a change is ours if it binds a pod with our annotations, or writes such a condition.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from tests.simulation.oracles.change import DELETED, Change, Object, Oracle, annotations_of, metadata_of, named
from tests.simulation.oracles.reading import OURS, bound_by_us, node_name_of

_BY_SERVER: Final = frozenset({"resourceVersion", "managedFields", "generation"})
_TOPOLOGY: Final = frozenset({"topology.kubernetes.io/zone", "topology.kubernetes.io/region"})
"""The API server copies these labels from the node to a pod that is bound."""
_DELETION: Final = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds"})
_OUR_CONDITIONS: Final = frozenset({"PodScheduled", "DisruptionTarget"})
_OUR_KEYS: Final = frozenset(
    {
        "neuron-scheduler/extender-address",
        "volume.kubernetes.io/selected-node",
        "pv.kubernetes.io/bound-by-controller",
        "pv.kubernetes.io/bind-completed",
    }
)
_MAY_DELETE: Final = frozenset({"Pod"})
_MAY_WRITE: Final = frozenset({"Pod", "Event", "Lease", "PersistentVolume", "PersistentVolumeClaim", "ResourceClaim"})


@attrs.define(eq=False, kw_only=True)
class OthersWords(Oracle):
    """
    Compares what a change of ours leaves of an object with what was there.

    Attributes:
        reporters: the names under which we write Events.
    """

    reporters: frozenset[str] = frozenset({"my-scheduler"})

    def changed(self, change: Change) -> None:
        """Judge a change of ours."""
        if not self._is_ours(change):
            return
        what = f"{change.author or 'a replica'} has changed {change.kind} {named(change.object)}"
        for loss in self._losses(change):
            self.violated(f"{what}: {loss}")

    def _is_ours(self, change: Change) -> bool:
        if change.author is not None or change.previous is None or change.kind != "Pod":
            return bool(change.author)
        return bound_by_us(change.previous, change.after) or _says_why_it_waits(change.previous, change.after)

    def _losses(self, change: Change) -> Iterator[str]:
        if change.kind not in _MAY_WRITE or (change.type == DELETED and change.kind not in _MAY_DELETE):
            yield f"such an object is not ours to write ({change.type})"
        elif change.previous is None or change.type == DELETED:
            return
        elif change.kind == "Pod":
            yield from _pod_losses(change.previous, change.object)
        elif change.kind == "Event":
            reporter = change.previous.get("reportingComponent") or change.previous.get("reportingController")
            if reporter not in self.reporters:
                yield f"it is an Event of {reporter}"
        else:
            yield from _lost(_texts(change.previous, "annotations"), _texts(change.object, "annotations"), _OUR_KEYS)
            yield from _lost(_texts(change.previous, "labels"), _texts(change.object, "labels"), frozenset())


def _says_why_it_waits(before: Object, after: Object | None) -> bool:
    """Return whether a pending pod's condition PodScheduled has changed."""
    if after is None or node_name_of(after):
        return False
    new = _conditions(after).get("PodScheduled")
    return new is not None and new != _conditions(before).get("PodScheduled")


def _pod_losses(before: Object, after: Object) -> Iterator[str]:
    binding = node_name_of(before) != node_name_of(after)
    ours = OURS if binding else frozenset[str]()
    yield from _lost(annotations_of(before), annotations_of(after), ours)
    yield from _lost(_texts(before, "labels"), _texts(after, "labels"), _TOPOLOGY if binding else frozenset())
    yield from _lost(_conditions(before), _conditions(after), _OUR_CONDITIONS)
    for part, may_change in (
        ("metadata", _BY_SERVER | _DELETION | {"annotations", "labels"}),
        ("spec", {"nodeName"} if binding else set()),
        ("status", {"conditions", "nominatedNodeName"}),
    ):
        yield from _changed(part, before.get(part) or {}, after.get(part) or {}, frozenset(may_change))


def _lost(before: Mapping[str, Any], after: Mapping[str, Any], ours: frozenset[str]) -> Iterator[str]:
    """Yield the keys that are gone, changed or new, but for our own."""
    for key in sorted((before.keys() | after.keys()) - ours):
        if before.get(key) != after.get(key):
            yield f"{key} was {before.get(key)!r} and is {after.get(key)!r}"


def _changed(part: str, before: Mapping[str, Any], after: Mapping[str, Any], ours: frozenset[str]) -> Iterator[str]:
    for field in sorted((before.keys() | after.keys()) - ours):
        if before.get(field) != after.get(field):
            yield f"{part}.{field} was {before.get(field)!r} and is {after.get(field)!r}"


def _conditions(pod: Object) -> dict[str, Any]:
    return {condition.get("type", ""): condition for condition in (pod.get("status") or {}).get("conditions") or []}


def _texts(obj: Object, field: str) -> Mapping[str, str]:
    return metadata_of(obj).get(field) or {}
