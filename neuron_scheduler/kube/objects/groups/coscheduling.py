"""
The labels of coscheduling (kubernetes-sigs/scheduler-plugins): the name of the group, and how many members it needs.

    pod-group.scheduling.sigs.k8s.io/name: train               or  scheduling.x-k8s.io/pod-group: train
    pod-group.scheduling.sigs.k8s.io/min-available: "4"

Without a readable count the group is inferred. Source: `apis/scheduling/v1alpha1`, KEP 42 of scheduler-plugins.
"""

from collections.abc import Mapping

from neuron_scheduler.model.pod_group import COUNT_LABEL, MOST_MEMBERS, NAME_LABELS, Dialect, GroupKey, PodGroup


def read(namespace: str, labels: Mapping[str, str], _annotations: Mapping[str, str]) -> PodGroup | None:
    name = next((labels[label] for label in NAME_LABELS if labels.get(label)), "")
    if not name:
        return None
    least = count_of(labels.get(COUNT_LABEL, ""))
    return PodGroup(GroupKey(Dialect.COSCHEDULING, namespace, name), least=least, expected=least)


def count_of(text: str) -> int:
    """Return a number of members; 0 if the text is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST_MEMBERS))):
        return 0
    return int(text) if int(text) <= MOST_MEMBERS else 0
