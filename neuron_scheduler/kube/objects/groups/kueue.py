"""
Kueue: the groups of plain pods, and the jobs that it has admitted.

A group of plain pods has a name, in a label or, since Kueue 0.18, in an annotation, and an annotation with its size.
Kueue lifts their scheduling gates together. The pods of a StatefulSet or LeaderWorkerSet may be created one by one:
annotations say so, and the group is inferred.

The pods of any other admitted job name its Workload in an annotation: an inferred group. A Job without completion
indexes has independent pods, and so has a Deployment. Source: `pkg/controller/jobs/pod` and `pkg/podset` in
kubernetes-sigs/kueue.
"""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.kube.objects.groups.coscheduling import count_of
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup

NAME: Final = "kueue.x-k8s.io/pod-group-name"
COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
RANK: Final = "kueue.x-k8s.io/pod-group-pod-index"
WORKLOAD: Final = "kueue.x-k8s.io/workload"
_MANAGED: Final = "kueue.x-k8s.io/managed"
_ONE_BY_ONE: Final = ("kueue.x-k8s.io/pod-group-serving", "kueue.x-k8s.io/pod-group-fast-admission")
_JOB: Final = "batch.kubernetes.io/job-name"
JOB_RANK: Final = "batch.kubernetes.io/job-completion-index"


def read(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> PodGroup | None:
    """Return the group of a plain pod; None if it is not said how many pods it has."""
    name, count = labels.get(NAME) or annotations.get(NAME), count_of(annotations.get(COUNT, ""))
    if not (name and count):
        return None
    one_by_one = any(annotations.get(word) == "true" for word in _ONE_BY_ONE)
    return PodGroup(GroupKey(Dialect.KUEUE, namespace, name), least=0 if one_by_one else count, expected=count)


def workload(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> PodGroup | None:
    """Return the group of the pods of an admitted job; None for pods that do not depend on each other."""
    name = annotations.get(WORKLOAD)
    if not name or _MANAGED in labels or (_JOB in labels and JOB_RANK not in labels):
        return None
    return PodGroup(GroupKey(Dialect.KUEUE, namespace, name))
