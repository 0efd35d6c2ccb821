"""
What must be done about a pod's volumes once it has a node: which volumes are kept for its claims, and for which claims
the node is selected, so that a volume is made there.

Upstream: `AssumePodVolumes` in `plugins/volumebinding/binder.go`. A pure function; who carries it out is
`volume_binder`.
"""

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import ClaimRef, PersistentVolume, PersistentVolumeClaim
from neuron_scheduler.scheduling.plugins.static_volumes import assigned
from neuron_scheduler.scheduling.plugins.volume_binding import claims_of


@attrs.frozen
class Keeping:
    """A volume that is kept for a claim from now on; it has the claim in it."""

    claim: PersistentVolumeClaim
    volume: PersistentVolume


@attrs.frozen
class VolumePlan:
    """
    What is to be done, and waited for, before the pod is bound.

    Attributes:
        keep: volumes that are there.
        provision: claims, with the node selected, whose volumes are to be made.
    """

    node_name: str
    keep: tuple[Keeping, ...] = ()
    provision: tuple[PersistentVolumeClaim, ...] = ()

    @property
    def assumed(self) -> tuple[PersistentVolume | PersistentVolumeClaim, ...]:
        """Return the objects as they are to be."""
        return (*(keeping.volume for keeping in self.keep), *self.provision)


def volume_plan(cluster: Cluster, pod: Pod, node_name: str) -> VolumePlan | None:
    """Return what a pod's volumes need on a node that was chosen for it; None if all its claims are bound."""
    _, waiting = claims_of(cluster.view, pod)
    if not waiting:
        return None
    keep, provision = [], []
    for claim, volume in assigned(cluster.view, pod, node_name, waiting):
        if volume is None:
            provision.append(attrs.evolve(claim, selected_node=node_name))
        else:
            kept = attrs.evolve(volume, claim=ClaimRef(claim.key, claim.uid))
            keep.append(Keeping(claim, kept))
    return VolumePlan(node_name, tuple(keep), tuple(provision))
