"""
Which group a pod is in, and its rank there, whatever the words are.

Most pods are in none, and this is called for every pod that is read: the readers are asked only if a word of theirs is
there. A pod may use several words, such as a group with a count beside AWS's affinity recipe: the first reader with a
count says who belongs together, and each says where.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

import attrs

from neuron_scheduler.kube.objects.groups import affinity, coscheduling, kueue, leader_worker_set
from neuron_scheduler.model.pod import Constraints
from neuron_scheduler.model.pod_group import PodGroup

Words = Mapping[str, str]
_READERS: Final[Mapping[str, Callable[[str, Words, Words], PodGroup | None]]] = {
    **dict.fromkeys(coscheduling.LABELS, coscheduling.read),
    kueue.LABEL: kueue.read,
    leader_worker_set.LABEL: leader_worker_set.read,
}
"""By the label that shows that a pod uses a dialect; the strongest words first."""
_RANKS: Final = (
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    leader_worker_set.RANK,
    kueue.RANK,
    "apps.kubernetes.io/pod-index",
)
"""Labels with a pod's number in its workload."""
_MOST_DIGITS: Final = 10


def group_of(namespace: str, labels: Words, annotations: Words, constraints: Constraints) -> PodGroup | None:
    """Return the group of a pod; None if it is in none."""
    if labels.keys().isdisjoint(_READERS) and not constraints.affinity:
        return None
    found = [*_found(namespace, labels, annotations, constraints)]
    if len(found) > 1:
        expected = next((group.expected for group in found if group.expected), 0)
        topology = next((group.topology for group in found if group.topology), "")
        found[0] = attrs.evolve(found[0], expected=expected, topology=topology)
    return _interned(found[0]) if found else None


def _found(namespace: str, labels: Words, annotations: Words, constraints: Constraints) -> Iterator[PodGroup]:
    for label, read in _READERS.items():
        group = read(namespace, labels, annotations) if label in labels else None
        if group is not None:
            yield group
    group = affinity.read(namespace, labels, constraints)
    if group is not None:
        yield group


@lru_cache(maxsize=4096)
def _interned(group: PodGroup) -> PodGroup:
    """Return the one object for equal values."""
    return group


def rank_of(labels: Words) -> int:
    """Return a pod's number in its workload; 0 if it has none."""
    for label in _RANKS:
        text = labels.get(label, "")
        if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS:
            return int(text)
    return 0
