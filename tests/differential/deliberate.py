"""
Where we differ from kube-scheduler on purpose, each with its entry in `docs/differences.md`.

All other answers are kube-scheduler's, to the letter.
"""

from collections.abc import Sequence
from typing import Final

from neuron_scheduler.scheduling.cycle.schedule_pod import NO_NODES_AVAILABLE
from tests.differential.vocabulary import Object
from tests.differential.world import Answer, World

UNSERVED: Final = ("iscsi", "rbd", "gcePersistentDisk")
"""Sources of volumes that no driver of AWS replaced: pods that name them inline are refused."""

ABOUT_OTHER_PODS: Final = ("pod topology spread constraints", "pod affinity rules", "anti-affinity rules")
"""Reasons that may differ where a node refuses a pod both without and with the pods that are nominated to it."""
_KEEPS_OFF: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
"""kube-scheduler ignores this reason from nominated pods where `PreFilter` skips the plugin."""


def agree(world: World, pod: Object, theirs: Answer, ours: Answer) -> bool:
    """Return whether our answer is kube-scheduler's, or the deliberately different one."""
    volumes = pod["spec"].get("volumes", ())
    if theirs.text == NO_NODES_AVAILABLE or any(source in volume for volume in volumes for source in UNSERVED):
        return not ours.feasible
    if _mounts_twice(volumes) or (world.nominated and _spreads_from_all(pod)):
        return set(theirs.feasible) <= set(ours.feasible)
    if world.nominated and any(reason in answer.text for reason in ABOUT_OTHER_PODS for answer in (theirs, ours)):
        differing = set(theirs.feasible) ^ set(ours.feasible)
        return not differing or (
            _KEEPS_OFF in ours.text and differing <= set(theirs.feasible) & _nominated_nodes(world)
        )
    return ours == theirs


def _nominated_nodes(world: World) -> set[str]:
    return {pod["status"]["nominatedNodeName"] for pod in world.nominated}


def _mounts_twice(volumes: Sequence[Object]) -> bool:
    """Return whether a pod names a claim twice: kube-scheduler then looks for two static volumes."""
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume]
    return len(set(claims)) < len(claims)


def _spreads_from_all(pod: Object) -> bool:
    """Return whether a selector is empty: it counts no pods, but in kube-scheduler nominated ones (`updateWithPod`)."""
    return any(constraint.get("labelSelector") == {} for constraint in pod["spec"].get("topologySpreadConstraints", ()))
