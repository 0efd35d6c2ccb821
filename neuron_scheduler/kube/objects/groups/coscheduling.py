"""
The labels of coscheduling (kubernetes-sigs/scheduler-plugins): the name of the group, and how many members it needs.

    pod-group.scheduling.sigs.k8s.io/name: train               or  scheduling.x-k8s.io/pod-group: train
    pod-group.scheduling.sigs.k8s.io/min-available: "4"

Without a readable count the group is inferred. Source: `apis/scheduling/v1alpha1`, KEP 42 of scheduler-plugins.
"""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup

LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name")
COUNT: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
MOST: Final = 10_000
"""Members; a larger count is no count."""


def read(namespace: str, labels: Mapping[str, str], _annotations: Mapping[str, str]) -> PodGroup | None:
    name = next((labels[label] for label in LABELS if labels.get(label)), "")
    if not name:
        return None
    least = count_of(labels.get(COUNT, ""))
    return PodGroup(GroupKey(Dialect.COSCHEDULING, namespace, name), least=least, expected=least)


def count_of(text: str) -> int:
    """Return a number of members; 0 if the text is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST))):
        return 0
    return int(text) if int(text) <= MOST else 0
