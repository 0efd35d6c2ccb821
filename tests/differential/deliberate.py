"""
Where we differ from kube-scheduler on purpose, each with its entry in `docs/differences.md`.

Everything else that kube-scheduler says, we say to the letter.
"""

import copy
from typing import Final

from tests.differential.vocabulary import Object
from tests.differential.world import Answer

UNSERVED: Final = ("iscsi", "rbd")
"""Sources of volumes that no CSI driver took over: pods that name them inline are refused."""


def agree(pod: Object, theirs: Answer, ours: Answer) -> bool:
    """Tell whether our answer is kube-scheduler's, or the one that is to be given in its place."""
    if any(source in volume for volume in pod["spec"].get("volumes", ()) for source in UNSERVED):
        return not ours.feasible
    return ours == theirs


def as_kube_scheduler_reads(pod: Object) -> Object:
    """
    Return a pending pod with the meaning that kube-scheduler 1.36 gives to its namespace selectors.

    `mergeAffinityTermNamespacesIfNotEmpty` changes a copy of the term, so the selector of a pending pod's own term is
    asked of no labels at all besides: one that holds nothing but NotIn and DoesNotExist selects every namespace.
    """
    read = copy.deepcopy(pod)
    rules = read["spec"].get("affinity", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in rules.get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            if _accepts_no_labels(term.get("namespaceSelector")):
                term["namespaceSelector"] = {}
    return read


def _accepts_no_labels(selector: Object | None) -> bool:
    if selector is None or selector.get("matchLabels"):
        return False
    return all(one["operator"] in ("NotIn", "DoesNotExist") for one in selector.get("matchExpressions", ()))
