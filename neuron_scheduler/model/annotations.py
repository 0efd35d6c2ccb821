"""
Every annotation that this scheduler reads or writes, with who writes it and where that is documented.

A pod's other annotations never enter memory. The admission policies in `manifests/` protect `ALLOCATION_KEYS` and
`OUR_LEADER`.
"""

from typing import Final

AWS_NEURON_IDS: Final = "AWS_NEURON_IDS"
"""
Pod: ids separated by commas, devices or cores by what the pod asks for. Written by us, AWS's extension and HAMi; the
device plugin hands out these ids. AWS does not document it: observed on pods that AWS's extension bound.
"""
NEURON_DEVS: Final = "NEURON_DEVS"
"""Pod: the same for devices, as in AWS's page "Neuron Scheduler Extension Flow Diagram". Written by us too."""
NEURON_CORES: Final = "NEURON_CORES"
"""Pod: the same for cores, as in the same page. Written by us too."""
NEURON_RESOURCE_TYPE: Final = "NEURON_RESOURCE_TYPE"
"""Pod: the resource that the ids belong to. Written by HAMi (`pkg/device/awsneuron/device.go`), for cores."""
NEURON_ALLOC_TIME: Final = "NEURON_ALLOC_TIME"
"""
Pod: Unix time in nanoseconds; the device plugin takes pods of equal requests in this order (decision 11). Written by
us, AWS's extension and HAMi.
"""
NEURON_ALLOCATED: Final = "NEURON_ALLOCATED"
"""Pod: `false` from the scheduler that binds it; the device plugin writes `true` when it has handed the ids out."""
OUR_ALLOCATION: Final = "neuron-scheduler/allocation"
"""Pod: JSON with the node, a list of ids for each container and init container, and the pod's whole set. Ours alone."""
OUR_LEADER: Final = "neuron-scheduler/leader"
"""
Binding, and so pod: the holder of the Lease that sent the Binding; the API server compares it with the Lease (decision
3). Ours alone, and never read.
"""

CAPACITY_REQUEST_PODS: Final = "neuron-scheduler/capacity-request-pods"
"""
What asks an autoscaler for a machine: the uids of the pods that wait for it, separated by commas, for people. Ours
alone, and never read.
"""

EXTENDER_ADDRESS: Final = "neuron-scheduler/extender-address"
"""
Lease: the URL at which its holder serves kube-scheduler's extender protocol, `http://10.0.0.7:12345`. Written by the
holder; other replicas send it what only the holder may do. Ours alone.
"""

PLUGIN_ID_KEYS: Final = (AWS_NEURON_IDS, NEURON_DEVS, NEURON_CORES)
"""The annotations from which the device plugin may take a pod's ids."""
ID_KEYS: Final = (*PLUGIN_ID_KEYS, OUR_ALLOCATION, NEURON_RESOURCE_TYPE)
"""The annotations that say which ids a pod holds."""
ALLOCATION_KEYS: Final = (*ID_KEYS, NEURON_ALLOC_TIME, NEURON_ALLOCATED)
"""The allocation: the annotations that are kept when a pod is read."""

NEURON_DEV_USAGE_MAP: Final = "NEURON_DEV_USAGE_MAP"
"""
Node: `true` or `false` for each device, with commas. AWS's extension remembers there which devices are used (AWS Neuron
documentation, "Neuron scheduler extension", troubleshooting; the form is observed). `usage_maps` prints it; no decision
reads it, because it becomes stale.
"""
NEURON_CORE_USAGE_MAP: Final = "NEURON_CORE_USAGE_MAP"
"""Node: the same for cores."""
USAGE_MAPS: Final = (NEURON_DEV_USAGE_MAP, NEURON_CORE_USAGE_MAP)

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""
PersistentVolumeClaim: the node for which its volume is to be provisioned. Written by the scheduler that placed the pod,
removed by a provisioner that found no room (`component-helpers/storage/volume`, `AnnSelectedNode`).
"""
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
"""PersistentVolumeClaim: written by the controller that has finished binding it (`AnnBindCompleted`, same file)."""
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""
PersistentVolume: its claim was not chosen by a user, so the reference may be removed. Written by us and by the
controller (`AnnBoundByController`, same file).
"""
BETA_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
"""PersistentVolume and claim: the class, before `storageClassName`. Written by users (`BetaStorageClassAnnotation`)."""
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""CSINode: in-tree plugins whose volumes CSI drivers serve there; its kubelet's (`MigratedPluginsAnnotationKey`)."""
