"""
What a pod's volumes need once it has a node: volumes kept for its claims, and claims for which the node is selected.

A provisioner makes volumes for the latter. Upstream: `AssumePodVolumes` in `plugins/volumebinding/binder.go`.
"""

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import ClaimRef, PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.scheduling.plugins.static_volumes import assign_volumes
from neuron_scheduler.scheduling.plugins.volume_binding import claims_of


@attrs.frozen
class KeptVolume:
    """A volume that is kept for a claim; the volume's own `claim` field names the claim."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


@attrs.frozen
class VolumePlan:
    """
    What is to be written, and waited for, before the pod is bound.

    Attributes:
        keep: existing volumes, each with its claim.
        provision: claims, with the node selected, whose volumes are to be provisioned.
    """

    node_name: str
    keep: tuple[KeptVolume, ...] = ()
    provision: tuple[PersistentVolumeClaim, ...] = ()

    @property
    def assumed_objects(self) -> tuple[PersistentVolume | PersistentVolumeClaim, ...]:
        return (*(kept.volume for kept in self.keep), *self.provision)


def volume_plan(cluster: Cluster, pod: Pod, node_name: str) -> VolumePlan | None:
    """Return what a pod's volumes need on the node that was chosen for it; None if all its claims are bound."""
    _, waiting = claims_of(cluster.view, pod)
    if not waiting:
        return None
    keep, provision = [], []
    for claim, volume in assign_volumes(cluster.view, pod, node_name, waiting):
        if volume is None:
            provision.append(attrs.evolve(claim, selected_node=node_name))
        else:
            keep.append(KeptVolume(claim, attrs.evolve(volume, claim=ClaimRef(claim.key, claim.uid))))
    return VolumePlan(node_name, tuple(keep), tuple(provision))


def reserve_volumes(cluster: Cluster, pod: Pod, node_name: str) -> VolumePlan | None:
    """Assume what a pod's volumes need on a node, all of it or nothing; None if they need nothing."""
    plan = volume_plan(cluster, pod, node_name)
    if plan is None:
        return None
    try:
        for volume_or_claim in plan.assumed_objects:
            cluster.volumes.assume(volume_or_claim)
    except Exception:
        release(cluster, plan)
        raise
    return plan


def release(cluster: Cluster, plan: VolumePlan) -> None:
    """Take back the assumptions of a plan, unless they are known to have been written."""
    for volume_or_claim in plan.assumed_objects:
        cluster.volumes.restore(volume_or_claim)
