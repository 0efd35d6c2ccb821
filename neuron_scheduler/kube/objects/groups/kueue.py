"""
Kueue's groups of plain pods: a label with the group's name, and an annotation with the number of its pods.

Kueue holds the pods by scheduling gates until their quota is there, and lifts these together. Pods of Jobs that Kueue
admits have no such label. Source: `pkg/controller/jobs/pod` in kubernetes-sigs/kueue.
"""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.kube.objects.groups.coscheduling import count_of
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup

LABEL: Final = "kueue.x-k8s.io/pod-group-name"
COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
RANK: Final = "kueue.x-k8s.io/pod-group-pod-index"


def read(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> PodGroup | None:
    """Return the group; None if it is not said how many pods it has."""
    least = count_of(annotations.get(COUNT, ""))
    if least is None or not labels[LABEL]:
        return None
    return PodGroup(GroupKey(Dialect.KUEUE, namespace, labels[LABEL]), least=least, expected=least)
