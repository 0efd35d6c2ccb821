"""
Where we differ from kube-scheduler on purpose, each with its entry in `docs/differences.md`.

Everything else that kube-scheduler says, we say to the letter.
"""

import copy
from collections.abc import Sequence
from typing import Final

from neuron_scheduler.scheduling.cycle.schedule_pod import NO_NODES_AVAILABLE
from tests.differential.vocabulary import Object
from tests.differential.world import Answer, World

UNSERVED: Final = ("iscsi", "rbd")
"""Sources of volumes that no CSI driver took over: pods that name them inline are refused."""

ABOUT_OTHER_PODS: Final = ("pod topology spread constraints", "pod affinity rules", "anti-affinity rules")
"""Reasons that another one may stand for where a node refuses a pod both as it is and with those nominated to it."""
_KEEPS_OFF: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
"""kube-scheduler does not hear those nominated say so where nothing else has the plugin asked (`PreFilter`)."""


def agree(world: World, pod: Object, theirs: Answer, ours: Answer) -> bool:
    """Tell whether our answer is kube-scheduler's, or the one that is to be given in its place."""
    volumes = pod["spec"].get("volumes", ())
    if theirs.text == NO_NODES_AVAILABLE or any(source in volume for volume in volumes for source in UNSERVED):
        return not ours.feasible
    if _mounts_twice(volumes) or (world.nominated and _spreads_from_all(pod)):
        return set(theirs.feasible) <= set(ours.feasible)
    if world.nominated and any(reason in answer.text for reason in ABOUT_OTHER_PODS for answer in (theirs, ours)):
        differing = set(theirs.feasible) ^ set(ours.feasible)
        return not differing or (_KEEPS_OFF in ours.text and differing <= set(theirs.feasible) & _promised(world))
    return ours == theirs


def _promised(world: World) -> set[str]:
    return {pod["status"]["nominatedNodeName"] for pod in world.nominated}


def _mounts_twice(volumes: Sequence[Object]) -> bool:
    """Tell whether a pod names a claim twice: kube-scheduler then looks for two static volumes."""
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]
    return len(set(claims)) < len(claims)


def _spreads_from_all(pod: Object) -> bool:
    """Tell whether a selector is empty: it counts nobody, but for kube-scheduler those nominated (`updateWithPod`)."""
    return any(one.get("labelSelector") == {} for one in pod["spec"].get("topologySpreadConstraints", ()))


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
