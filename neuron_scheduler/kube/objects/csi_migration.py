"""
Volumes of in-tree plugins as the CSI drivers know them that took the plugins' place.

Upstream: `csi-translation-lib/plugins`. Only what scheduling reads: driver, handle, and in whose labels the zone is
told. A plugin that is not here (iSCSI, RBD, Photon) has no driver in its place.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import MIGRATED, InlineVolume

AWS_EBS: Final = "kubernetes.io/aws-ebs"
GCE_PD: Final = "kubernetes.io/gce-pd"
AZURE_DISK: Final = "kubernetes.io/azure-disk"
CINDER: Final = "kubernetes.io/cinder"
PORTWORX: Final = "kubernetes.io/portworx-volume"

_ZONE_KEYS: Final[Mapping[str, str]] = {
    AWS_EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    AZURE_DISK: "topology.disk.csi.azure.com/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_BETA_ZONE, _BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

Terms = tuple[NodeSelectorTerm, ...]


def in_tree_disk(source: wire.InTree) -> InlineVolume | None:
    """Return the disk that a volume of a pod or a PersistentVolume names, None if no CSI driver serves it."""
    ebs, gce, azure = source.aws_elastic_block_store, source.gce_persistent_disk, source.azure_disk
    if ebs is not None:
        # `aws://zone/vol-id` or the bare id; no two pods share an EBS disk, so read-only means nothing
        return _disk(AWS_EBS, ebs.volume_id.rstrip("/").rpartition("/")[2])
    if gce is not None:
        return _disk(GCE_PD, gce.pd_name, read_only=bool(gce.read_only))
    if azure is not None:
        return _disk(AZURE_DISK, azure.disk_uri)
    if source.cinder is not None:
        return _disk(CINDER, source.cinder.volume_id)
    if source.portworx_volume is not None:
        return _disk(PORTWORX, source.portworx_volume.volume_id)
    return None


def _disk(plugin: str, handle: str, *, read_only: bool = False) -> InlineVolume:
    return InlineVolume(plugin, MIGRATED[plugin], handle, read_only)


def csi_terms(plugin: str, terms: Terms | None, labels: Mapping[str, str]) -> Terms | None:
    """Return a volume's node affinity in the labels of the plugin's driver (`translateTopologyFromInTreeToCSI`)."""
    key = _ZONE_KEYS.get(plugin)
    if key is None:
        return terms
    zone, region = _told_in(terms or (), labels)
    if _has(terms or (), zone):
        terms = _renamed(terms or (), {zone: key})
    elif zone in labels:
        zones = tuple(sorted({part.strip() for part in labels[zone].split("__")} - {""}))
        if zones:
            there = Requirement(key, Operator.IN, zones)
            terms = tuple(
                attrs.evolve(term, expressions=(*term.expressions, there)) for term in terms or (NodeSelectorTerm(),)
            )
    return _renamed(terms, {_BETA_REGION: _REGION}) if terms and region == _BETA_REGION else terms


def _told_in(terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the labels in which a volume tells zone and region: of its affinity first, and the old ones last."""
    terms = tuple(terms)
    beta = not _has(terms, _ZONE) and (_has(terms, _BETA_ZONE) or (_ZONE not in labels and _BETA_ZONE in labels))
    return (_BETA_ZONE, _BETA_REGION) if beta else (_ZONE, _REGION)


def _has(terms: Iterable[NodeSelectorTerm], key: str) -> bool:
    return any(requirement.key == key for term in terms for requirement in term.expressions)


def _renamed(terms: Terms, names: Mapping[str, str]) -> Terms:
    return tuple(
        attrs.evolve(term, expressions=tuple(attrs.evolve(r, key=names.get(r.key, r.key)) for r in term.expressions))
        for term in terms
    )
