"""
Which group a pod is in, and its rank there, whatever the words are.

Most pods are in no group: the readers are asked only of a pod with one of `SIGNS`, or an affinity. A pod may use
several words: the first reader that knows the pod says who belongs together, and each may say where.

A pod that is compared with many others (`controllers/side_lane`) is in no group, nor is the only member of one. Of a
JobSet with an exclusive topology only the affinity counts. The first pod of each Job has it; the others do not exist
before that one has a node.
"""

import re
from collections.abc import Mapping
from typing import Final

import attrs

from neuron_scheduler.kube.objects.groups import affinity, coscheduling, kueue, leader_worker_set
from neuron_scheduler.model.pod import FEW_COMPARISONS, Constraints
from neuron_scheduler.model.pod_group import NAME_LABELS, Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import NO_LABELS

Words = Mapping[str, str]
SIGNS: Final = frozenset((*NAME_LABELS, kueue.NAME, kueue.WORKLOAD, leader_worker_set.LABEL))
"""Each shows, as a label or an annotation, that a pod uses a dialect."""
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_BY_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""With this annotation beside it, all pods of the JobSet are created at once."""
_RANKS: Final = (
    kueue.JOB_RANK,
    "training.kubeflow.org/replica-index",
    leader_worker_set.RANK,
    kueue.RANK,
    "apps.kubernetes.io/pod-index",
)
"""Labels with a pod's number in its workload."""
_MOST_DIGITS: Final = 10
_PLAIN: Final = re.compile(r"[a-zA-Z0-9._/-]*")
"""What controllers write. Names and topologies go into messages, and an annotation may have any text."""


def group_of(
    namespace: str, labels: Words, annotations: Words, constraints: Constraints, native: str | None = None
) -> PodGroup | None:
    """Return the group of a pod; None if it is in none. `native` is the name of the PodGroup in its spec."""
    alone = _EXCLUSIVE in annotations and _BY_NODE_SELECTOR not in annotations
    plain = {name: text for name, text in annotations.items() if _PLAIN.fullmatch(text)}
    words = (NO_LABELS, NO_LABELS) if alone else (labels, plain)
    said = (
        PodGroup(GroupKey(Dialect.NATIVE, namespace, native)) if native and not alone else None,
        coscheduling.read(namespace, *words),
        leader_worker_set.read(namespace, *words),
        kueue.read(namespace, *words),
        None if labels.get(leader_worker_set.SUBGROUP) else affinity.read(namespace, labels, constraints),
        kueue.workload(namespace, *words),
    )
    found = [group for group in said if group is not None]
    if not found or 1 in (found[0].least, found[0].expected) or constraints.comparisons > FEW_COMPARISONS:
        return None
    domain = next((group for group in found if group.topology), found[0])
    of = domain.key.name if domain is not found[0] and domain.key.dialect is Dialect.AFFINITY else ""
    return attrs.evolve(found[0], topology=domain.topology, of=of)


def rank_of(labels: Words) -> int:
    for label in _RANKS:
        text = labels.get(label, "")
        if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS:
            return int(text)
    return 0
