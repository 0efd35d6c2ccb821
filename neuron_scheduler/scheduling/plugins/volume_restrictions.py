"""
VolumeRestrictions: a ReadWriteOncePod claim has one pod in the cluster, a disk that cannot be shared one per node.

Upstream: `plugins/volumerestrictions/volume_restrictions.go`. In-tree disks other than EBS are refused: nobody knows
here whether two pods may share one.
"""

from collections.abc import Sequence

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.tables.volumes import claims_on
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import InlineVolume
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

NAME = PluginName("VolumeRestrictions")
DISK = "node(s) had no available disk"
ONE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_VOLUMES = (PodField.VOLUME_CLAIMS, PodField.DISKS, PodField.INLINE_VOLUMES)


def _disks(node_info: NodeInfo) -> Values:
    return tuple({volume for volume in node_info.volumes if isinstance(volume, InlineVolume)})


def pre_filter(view: View, pod: Pod) -> PodRefusal | None:
    """Refuse a pod with a claim that does not exist: no node helps, only the claim does."""
    constraints = pod.constraints
    if constraints.inline_volumes:
        name = constraints.inline_volumes[0]
        reason = f'volume "{name}" is of an in-tree type that no CSI driver serves; use a PersistentVolumeClaim'
        return PodRefusal(NAME, reason)
    for name in constraints.volume_claims:
        if name not in constraints.ephemeral_claims and view.volumes.claim(f"{pod.namespace}/{name}") is None:
            return PodRefusal(NAME, not_found(name))
    return None


def not_found(name: str) -> str:
    """Return the API server's words for a claim that does not exist."""
    return f'persistentvolumeclaim "{name}" not found'


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes with a pod that uses the same disk; all nodes if a claim for one pod is in use."""
    constraints = pod.constraints
    if not (constraints.disks or constraints.volume_claims):
        return NONE_REFUSED
    taken = NO_NODES
    for disk in constraints.disks:
        taken |= view.postings(_disks).get(disk)
    keys = (f"{pod.namespace}/{name}" for name in constraints.volume_claims if name not in constraints.ephemeral_claims)
    in_use = any(_is_for_one_pod(view, key) and view.postings(claims_on).get(key) for key in keys)
    return [
        Refusal(NAME, DISK, among & taken),
        Refusal(NAME, ONE_POD, among & ~taken if in_use else NO_NODES, new_node_cannot_help=True),
    ]


def _is_for_one_pod(view: View, key: str) -> bool:
    claim = view.volumes.claim(key)
    return claim is not None and "ReadWriteOncePod" in claim.access_modes


PLUGIN = Plugin(
    name=NAME,
    pre_filter=PreFilter(pre_filter, reads=_VOLUMES),
    filters=(Filter(filter_nodes, reads=_VOLUMES),),
    events=frozenset(
        {
            ClusterEvent.NODE_ADDED,
            ClusterEvent.NODE_DELETED,  # its pods no longer count, even if they have not ended
            ClusterEvent.ASSIGNED_POD_GONE,
            ClusterEvent.CLAIM_ADDED,
        }
    ),
    counts_volumes=True,
    cause=Cause.VOLUMES,
)
