"""
VolumeZone: a volume whose labels name its zone, as those of old volumes do, can be used in that zone only.

Upstream: `plugins/volumezone/volume_zone.go`. Volumes of CSI drivers have the zone in their node affinity.
"""

from collections.abc import Iterator, Sequence

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import BETA_REGION_LABEL, BETA_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import PersistentVolume
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import (
    NONE_REFUSED,
    Filter,
    Plugin,
    PluginName,
    PodRefusal,
    PreFilter,
    Refusal,
)
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("VolumeZone")
REASON = "node(s) had no available volume zone"
NO_NAMES = "PersistentVolumeClaim had no pv name and storageClass name"
NO_VOLUME = "PersistentVolume had no name"

_TODAY = {BETA_ZONE_LABEL: ZONE_LABEL, BETA_REGION_LABEL: REGION_LABEL}
_KEYS = (*_TODAY, *_TODAY.values())


def pre_filter(view: View, pod: Pod) -> PodRefusal | None:
    """Refuse a pod with a claim that has neither a volume nor a class that would provision one."""
    for key in lasting_claims(pod):
        claim = view.volumes.claim(key)
        if claim is None:
            continue  # VolumeRestrictions has refused it
        if claim.volume_name:
            if view.volumes.volume(claim.volume_name) is None:
                return PodRefusal(NAME, f'persistentvolume "{claim.volume_name}" not found')
        elif not claim.class_name:
            return PodRefusal(NAME, NO_NAMES)
        elif claim.class_name not in view.volumes.classes:
            return PodRefusal(NAME, f'storageclass.storage.k8s.io "{claim.class_name}" not found')
        elif not view.volumes.waits_for_consumer(claim):
            return PodRefusal(NAME, NO_VOLUME)
    return None


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes in another zone or region than a volume's; a node without such labels takes any."""
    required = [label for key in lasting_claims(pod) for label in zones_of(view, key)]
    if not required:
        return NONE_REFUSED
    labelled = NO_NODES
    for key in _KEYS:
        labelled |= view.label_postings(key).keyed
    refused = NO_NODES
    for key, values in required:
        postings = view.label_postings(key)
        there = postings.any_of(values)
        if key in _TODAY:
            there |= view.label_postings(_TODAY[key]).any_of(values) & ~postings.keyed
        refused |= ~there
    return [Refusal(NAME, REASON, among & labelled & refused, unresolvable=True)]


def lasting_claims(pod: Pod) -> Iterator[str]:
    """Yield the keys of the pod's claims but those of generic ephemeral volumes, which are never old."""
    constraints = pod.constraints
    for name in constraints.volume_claims:
        if name not in constraints.ephemeral_claims:
            yield f"{pod.namespace}/{name}"


def zones_of(view: View, key: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    claim = view.volumes.claim(key)
    volume = view.volumes.volume(claim.volume_name) if claim is not None else None
    if volume is not None:
        yield from zones(volume)


def zones(volume: PersistentVolume) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the labels of a volume's zone and region, each with the values it allows; `__` separates them."""
    for key in _KEYS:
        parts = tuple(part.strip() for part in volume.labels.get(key, "").split("__"))
        if all(parts):
            yield key, parts


PLUGIN = Plugin(
    name=NAME,
    pre_filter=PreFilter(pre_filter, reads=(PodField.VOLUME_CLAIMS,)),
    filters=(Filter(filter_nodes, reads=(PodField.VOLUME_CLAIMS,)),),
    events=frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_LABELS,
            ClusterEvent.CLAIM_ADDED,
            ClusterEvent.CLAIM_CHANGED,
            ClusterEvent.VOLUME_ADDED,
            ClusterEvent.VOLUME_CHANGED,
            ClusterEvent.CLASS_ADDED,
        }
    ),
    cause=Cause.VOLUMES,
)
