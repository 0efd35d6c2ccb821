"""
Volumes of in-tree plugins as the CSI drivers that replaced the plugins know them.

Upstream: `csi-translation-lib/plugins`. A plugin that is not here (iSCSI, RBD, Photon) was not replaced by a driver.
Refuses what scheduling does not read: it translates driver, handle and zone only.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.model.node import BETA_REGION_LABEL, BETA_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import AWS_EBS, AZURE_DISK, CINDER, GCE_PD, MIGRATED, PORTWORX, InlineVolume

_ZONE_KEYS: Final[Mapping[str, str]] = {
    AWS_EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    AZURE_DISK: "topology.disk.csi.azure.com/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}

Terms = tuple[NodeSelectorTerm, ...]


def in_tree_disk(source: wire.InTree) -> InlineVolume | None:
    """Return the disk behind a volume of a pod or a PersistentVolume, None if no CSI driver serves it."""
    ebs, gce, azure = source.aws_elastic_block_store, source.gce_persistent_disk, source.azure_disk
    if ebs is not None:
        # `aws://zone/vol-id` or the bare id; no two pods share an EBS disk, so read-only does not count
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
    zone, region = _zone_labels(terms or (), labels)
    if _has(terms or (), zone):
        terms = _renamed(terms or (), {zone: key})
    elif zone in labels:
        zones = tuple(sorted({part.strip() for part in labels[zone].split("__")} - {""}))
        if zones:
            in_zones = Requirement(key, Operator.IN, zones)
            terms = tuple(
                attrs.evolve(term, expressions=(*term.expressions, in_zones)) for term in terms or (NodeSelectorTerm(),)
            )
    return _renamed(terms, {BETA_REGION_LABEL: REGION_LABEL}) if terms and region == BETA_REGION_LABEL else terms


def _zone_labels(terms: Iterable[NodeSelectorTerm], labels: Mapping[str, str]) -> tuple[str, str]:
    """Return the labels for zone and region that a volume uses: those of its affinity first, the beta ones last."""
    terms = tuple(terms)
    beta = not _has(terms, ZONE_LABEL) and (
        _has(terms, BETA_ZONE_LABEL) or (ZONE_LABEL not in labels and BETA_ZONE_LABEL in labels)
    )
    return (BETA_ZONE_LABEL, BETA_REGION_LABEL) if beta else (ZONE_LABEL, REGION_LABEL)


def _has(terms: Iterable[NodeSelectorTerm], key: str) -> bool:
    return any(requirement.key == key for term in terms for requirement in term.expressions)


def _renamed(terms: Terms, names: Mapping[str, str]) -> Terms:
    return tuple(
        attrs.evolve(term, expressions=tuple(attrs.evolve(r, key=names.get(r.key, r.key)) for r in term.expressions))
        for term in terms
    )
