"""
NodeVolumeLimits: a CSI driver attaches a limited number of volumes to a node.

Upstream: `plugins/nodevolumelimits/csi.go`. A volume counts once, however many pods use it, and also if only a
VolumeAttachment names it. A node without a limit for the driver takes any number; none if its CSIDriver requires the
driver and the node lacks it (on by default since Kubernetes 1.37). A volume of an in-tree plugin counts for the driver
that replaced the plugin, whatever the node's migrated-plugins annotation is.
"""

from collections.abc import Sequence
from functools import lru_cache

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, less
from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import Attachable, InlineVolume
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.contract import NONE_REFUSED, Filter, Plugin, PluginName, Refusal
from neuron_scheduler.scheduling.plugins.pod_fields import PodField

NAME = PluginName("NodeVolumeLimits")
REASON = "node(s) exceed max volume count"
MISSING = "{driver} CSI driver is not installed on the node"

Disk = Attachable | InlineVolume


def volumes_used(node_info: NodeInfo) -> set[tuple[str, str]]:
    """Return (driver, handle) of the volumes that the node's pods use."""
    return {(volume.driver, volume.handle) for volume in node_info.volumes if not isinstance(volume, str)}


def _attached_volumes(node_info: NodeInfo) -> Values:
    return tuple(volumes_used(node_info)) if node_info.volumes and node_info.storage.limits else ()


def _installed_drivers(node_info: NodeInfo) -> Values:
    return tuple(node_info.storage.drivers)


def _limited_drivers(node_info: NodeInfo) -> Values:
    return tuple(node_info.storage.limits)


@attrs.frozen(cache_hash=True)
class VolumeRoom:
    """Index definition: how many more volumes a driver can attach; 0 where it has no limit."""

    driver: str

    def __call__(self, node_info: NodeInfo) -> int:
        limit = node_info.storage.limits.get(self.driver, 0)
        if not limit:
            return 0
        attached = volumes_used(node_info) | node_info.storage.attachments
        return max(0, limit - sum(driver == self.driver for driver, _ in attached))


_room = lru_cache(maxsize=256)(VolumeRoom)


def filter_nodes(view: View, pod: Pod, among: NodeSet) -> Sequence[Refusal]:
    """Refuse nodes that lack a driver, and nodes on which the volumes that are not attached yet would be too many."""
    by_driver: dict[str, list[Disk]] = {}
    for volume in view.volumes.held_by(pod):
        if not isinstance(volume, str):
            by_driver.setdefault(volume.driver, []).append(volume)
    if not by_driver:
        return NONE_REFUSED
    refusals, crowded = list[Refusal](), NO_NODES
    for driver in by_driver:
        lacking = _nodes_without(view, driver, among)
        refusals.append(Refusal(NAME, MISSING.format(driver=driver), lacking))
        among = less(among, lacking)
    for driver, disks in by_driver.items():
        limited = view.postings(_limited_drivers).get(driver) & among
        if limited:
            crowded |= less(limited, _nodes_with_room(view, driver, disks, limited))
    return [*refusals, Refusal(NAME, REASON, crowded)]


def _nodes_without(view: View, driver: str, among: NodeSet) -> NodeSet:
    """Return the nodes without the driver, if its CSIDriver keeps pods with its volumes off them."""
    csi_driver = view.volumes.drivers.get(driver)
    if csi_driver is None or not csi_driver.required:
        return NO_NODES
    return less(among, view.postings(_installed_drivers).get(driver))


def _nodes_with_room(view: View, driver: str, disks: Sequence[Disk], limited: NodeSet) -> NodeSet:
    """Return the nodes with room for those of the disks that they do not have yet."""
    spared = Column()
    for disk in disks:
        there = view.postings(_attached_volumes).get((disk.driver, disk.handle))
        spared.add(1, there & limited)
    room = view.column(_room(driver))
    fitting = spared.at_least(len(disks), limited)
    for new in range(1, len(disks)):
        fitting |= room.at_least(new, limited) & spared.at_least(len(disks) - new, limited)
    return fitting | room.at_least(len(disks), limited)


PLUGIN = Plugin(
    name=NAME,
    filters=(Filter(filter_nodes, reads=(PodField.VOLUME_CLAIMS, PodField.DISKS, PodField.INLINE_VOLUMES)),),
    events=frozenset(
        {
            ClusterEvent.NODE_ADDED,
            # An attached volume counts as new to a pod until another pod on the node uses it.
            ClusterEvent.ASSIGNED_POD_ADDED,
            ClusterEvent.ASSIGNED_POD_GONE,
            ClusterEvent.CLAIM_ADDED,
            ClusterEvent.CLAIM_CHANGED,
            ClusterEvent.VOLUME_ADDED,
            ClusterEvent.VOLUME_CHANGED,
            ClusterEvent.CLASS_ADDED,  # its provisioner may be another one
            ClusterEvent.CSI_NODE_ADDED,
            ClusterEvent.CSI_NODE_CHANGED,
            ClusterEvent.CSI_DRIVER_CHANGED,
            ClusterEvent.ATTACHMENT_GONE,
        }
    ),
    counts_volumes=True,
    cause=Cause.VOLUMES,
)
