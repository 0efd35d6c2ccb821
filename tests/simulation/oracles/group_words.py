"""
Which pods belong together, read from their JSON as each project's documents say it.

A *declared* group says how many members it needs; a pod that says one is in none, and of counts that differ the largest
holds. An *inferred* group has no count. A preference is no group. Shares no code with the package.
"""

from collections.abc import Iterable
from typing import Final

import attrs

from tests.simulation.oracles.change import Object, annotations_of, metadata_of
from tests.simulation.oracles.reading import asks_for_neuron, has_ended, node_name_of
from tests.simulation.pod_plans import COUNT, KUEUE, KUEUE_COUNT, NAME, OURS, ULTRASERVER

LWS: Final = "leaderworkerset.sigs.k8s.io/group-key"
EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""JobSet creates the other pods of a job only when its first one has a node: no pod waits for them."""
ONE_BY_ONE: Final = ("kueue.x-k8s.io/pod-group-serving", "kueue.x-k8s.io/pod-group-fast-admission")
"""Kueue's annotations of groups whose pods may be created one after the other."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SERVER_IDS: Final = (ULTRASERVER, ULTRASERVER.replace("-4", "-2"))


@attrs.frozen
class Words:
    """A group as one pod says it: its name, which has the namespace in it, and its count; 0 if it is inferred."""

    name: str
    least: int = 0


def words_of(pod: Object) -> Words | None:
    """Return the words of a pod; None if it is in no group."""
    labels, notes = metadata_of(pod).get("labels") or {}, annotations_of(pod)
    space = metadata_of(pod).get("namespace")
    for name, count in (
        (labels.get(NAME) if EXCLUSIVE not in notes else None, labels.get(COUNT, "")),
        (labels.get(KUEUE) or notes.get(KUEUE), notes.get(KUEUE_COUNT, "")),
    ):
        if name and count.isdecimal():
            one_by_one = name != labels.get(NAME) and any(notes.get(word) == "true" for word in ONE_BY_ONE)
            return None if int(count) == 1 else Words(f"{space}/{name}", 0 if one_by_one else int(count))
    if labels.get(LWS):
        return Words(f"{space}/{labels[LWS]}")
    for term in ((pod.get("spec") or {}).get("affinity") or {}).get("podAffinity", {}).get(REQUIRED) or []:
        chosen = dict((term.get("labelSelector") or {}).get("matchLabels") or {})
        for rule in (term.get("labelSelector") or {}).get("matchExpressions") or []:
            if rule["operator"] == "In":
                chosen[rule["key"]] = rule["values"][0]
        if term["topologyKey"] in _SERVER_IDS and chosen.items() <= labels.items() and chosen:
            return Words(f"{space}/{','.join(f'{key}={value}' for key, value in sorted(chosen.items()))}")
    return None


def is_lws(pod: Object) -> bool:
    """Return whether a pod is one of a LeaderWorkerSet: a leader also waits for room for pods that do not exist yet."""
    return LWS in (metadata_of(pod).get("labels") or {})


def counts(pod: Object) -> bool:
    """Return whether a pod is a member as far as counts are concerned; another scheduler may never bind its pods."""
    return _is_member(pod) and not is_foreign(pod)


def is_foreign(pod: Object) -> bool:
    """Return whether a pod is a member whose words count, while it does not."""
    decided_elsewhere = (pod.get("spec") or {}).get("schedulerName") != OURS
    return _is_member(pod) and decided_elsewhere and asks_for_neuron(pod) and not node_name_of(pod)


def _is_member(pod: Object) -> bool:
    is_gated, ends = (pod.get("spec") or {}).get("schedulingGates"), metadata_of(pod).get("deletionTimestamp")
    return not (has_ended(pod) or is_gated or ends)


def least_of(members: Iterable[Object]) -> int:
    """Return the count of a group: the largest that a member says."""
    return max((words.least for pod in members if (words := words_of(pod)) is not None), default=0)
