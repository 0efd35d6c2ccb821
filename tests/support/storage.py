"""Builders of claims, volumes and their neighbours, and of a cluster with them."""

from collections.abc import Iterable
from typing import Any

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import HOSTNAME_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import (
    ROOM,
    ClaimRef,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    StorageClass,
)
from tests.support.builders import GI, node
from tests.support.harness import cluster_of

WAITING = StorageClass("uid-local", "local", "kubernetes.io/no-provisioner", waits=True)
MADE = StorageClass("uid-gp3", "gp3", "ebs.csi.aws.com", waits=True)
IMMEDIATE = StorageClass("uid-efs", "efs", "efs.csi.aws.com")
CLASSES: tuple[Storage, ...] = (WAITING, MADE, IMMEDIATE)


def at(key: str, *values: str) -> tuple[NodeSelectorTerm, ...]:
    """Return a node affinity that asks for a label."""
    return (NodeSelectorTerm((Requirement(key, Operator.IN, values),)),)


def zone(*names: str) -> tuple[NodeSelectorTerm, ...]:
    """Return the node affinity of a volume in one of some zones."""
    return at(ZONE_LABEL, *names)


def host(*names: str) -> tuple[NodeSelectorTerm, ...]:
    """Return the node affinity of a volume on one of some nodes."""
    return at(HOSTNAME_LABEL, *names)


def claim(
    name: str = "data", *, bound_to: str = "", class_name: str = "local", request: int = GI, **rest: Any
) -> PersistentVolumeClaim:
    """Return a claim, fully bound to a volume if it names one; `rest` are further fields."""
    fields: dict[str, Any] = {"bind_completed": bool(bound_to), "access_modes": ("ReadWriteOnce",)} | rest
    return PersistentVolumeClaim(
        f"uid-{name}", "default", name, volume_name=bound_to, class_name=class_name, request=request, **fields
    )


def volume(
    name: str = "pv",
    *,
    on: tuple[NodeSelectorTerm, ...] | None = None,
    of: str = "",
    class_name: str = "local",
    capacity: int = GI,
    **rest: Any,
) -> PersistentVolume:
    """Return a volume, of a claim in the default namespace if it names one; `on` is its node affinity."""
    fields: dict[str, Any] = {
        "access_modes": ("ReadWriteOnce",),
        "csi_terms": on,
        "available": not of,
        "claim": ClaimRef(f"default/{of}", f"uid-{of}") if of else None,
    }
    return PersistentVolume(
        f"uid-{name}", name, class_name=class_name, capacity=capacity, required_terms=on, **(fields | rest)
    )


def room(
    name: str, largest: int | None, *, on: tuple[NodeSelectorTerm, ...] | None = None, uid: str = ""
) -> CSIStorageCapacity:
    """Return the room of class gp3 on some nodes; without a size it is unknown."""
    fields: dict[str, Any] = {"class_name": "gp3", "volume_mode": ROOM, "required_terms": on}
    return CSIStorageCapacity(uid or name, f"\n{name}", capacity=largest or 0, available=largest is not None, **fields)


def zoned(**zones: str) -> list[Node]:
    """Return nodes with their zones, `name=zone`, and their names as labels."""
    return [
        node(name, labels={ZONE_LABEL: of_zone, HOSTNAME_LABEL: name}, created=number)
        for number, (name, of_zone) in enumerate(zones.items())
    ]


def stored(nodes: Iterable[Node], *storage: Storage, pods: Iterable[Pod] = ()) -> Cluster:
    """Return a cluster of nodes, storage objects with the usual classes, and bound pods."""
    cluster = cluster_of(nodes)
    for obj in (*CLASSES, *storage):
        cluster.put_storage(obj)
    for pod in pods:
        cluster.put_pod(pod)
    return cluster
