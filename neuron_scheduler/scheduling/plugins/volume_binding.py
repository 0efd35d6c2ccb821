"""
VolumeBinding: volumes that decide where a pod may run are not served yet, so such pods are refused.

Volumes that any node can mount (emptyDir, hostPath, configMap, secret, projected, NFS, inline CSI) are no concern
here.
"""

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.framework import PodRefusal

NAME = "VolumeBinding"
CLAIMS = "persistent volume claims and generic ephemeral volumes are not supported yet"
INLINE = "in-tree inline volumes are not supported; use a PersistentVolumeClaim"


def pre_filter(_: Cluster, pod: Pod) -> PodRefusal | None:
    """Refuse pods with a claim or with an in-tree inline volume."""
    if pod.constraints.volume_claims:
        return PodRefusal(NAME, CLAIMS, hopeless=True)
    if pod.constraints.inline_volumes:
        return PodRefusal(NAME, INLINE, hopeless=True)
    return None
