"""
Our side: the same API objects, decoded into our cluster, and the answer of our filters.

No process, no server: `schedule_pod` itself, called again without the node that it chose until there is none, because
the extender leaves kube-scheduler none.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, from_slots, slots_of
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.cluster.view import View
from neuron_scheduler.kube.objects.base import Decoded, Malformed, Resource
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.storage import (
    ATTACHMENTS,
    CAPACITIES,
    CLAIMS,
    CLASSES,
    CSI_DRIVERS,
    CSI_NODES,
    VOLUMES,
)
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selecting_kinds import Namespace
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.refusals import first_reasons
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.contract import Filter, PluginName, Refusal
from tests.differential.vocabulary import Object
from tests.differential.world import FEASIBLE, Answer, World

_STORAGE: Final[Mapping[str, Resource[Any]]] = {
    "PersistentVolumeClaim": CLAIMS,
    "PersistentVolume": VOLUMES,
    "StorageClass": CLASSES,
    "CSINode": CSI_NODES,
    "CSIDriver": CSI_DRIVERS,
    "CSIStorageCapacity": CAPACITIES,
    "VolumeAttachment": ATTACHMENTS,
}
PROFILE: Final = default_profile("default-scheduler")


EXTENDER: Final = PluginName("Extender")


@attrs.define(eq=False)
class Extender:
    """The last filter: refuses the nodes that were already chosen."""

    chosen: set[str] = attrs.field(factory=set)

    def __call__(self, view: View, _: Pod, among: NodeSet) -> Sequence[Refusal]:
        """Refuse the chosen nodes."""
        slots = (slot for slot in slots_of(among) if view.row(slot).node.name in self.chosen)
        return [Refusal(EXTENDER, FEASIBLE, from_slots(slots, among.bit_length()))]


def cluster_of(world: World) -> Cluster:
    """Return the cluster that our informers would make of a stored world."""
    cluster = Cluster()
    for manifest in world.beside:
        _put_beside(cluster, manifest)
    for manifest in world.nodes:
        node = NODES.decode(_bytes(manifest)).value
        if node is None or isinstance(node, Malformed):
            raise AssertionError(f"cannot read {manifest}: {node}")
        cluster.put_node(node)
    for manifest in world.bound:
        pod = _read(PODS.decode(_bytes(manifest)))
        if pod is not None:  # None has ended
            cluster.put_pod(pod)
    for manifest in world.nominated:
        pod = _read(PODS.decode(_bytes(manifest)))
        if pod is not None:
            cluster.nominate(pod.nominated_node_name, Nomination(pod))
    return cluster


def answer(cluster: Cluster, manifest: Object) -> Answer:
    """Return our filters' answer for a stored pending pod."""
    pod = _read(PODS.decode(_bytes(manifest)))
    if pod is None:
        raise AssertionError("a pending pod has not ended")
    extender = Extender()
    profile = attrs.evolve(PROFILE, filters=(*PROFILE.filters, Filter(extender)))
    while isinstance(decision := schedule_pod(cluster, pod, profile), Decision):
        if decision.node_name in extender.chosen:
            raise AssertionError(f"{decision.node_name} was refused and is chosen all the same")
        extender.chosen.add(decision.node_name)
    if decision.cause is Cause.NOMINATED:  # kube-scheduler does not say that space is kept for others
        decision = attrs.evolve(decision, hint="")
    return Answer(tuple(sorted(extender.chosen)), decision.text)


def refusal(cluster: Cluster, manifest: Object, node_name: str) -> str:
    """Return the first reason for which our filters refuse a node; empty if they do not."""
    pod = _read(PODS.decode(_bytes(manifest)))
    slot = cluster.view.slot(node_name)
    if pod is None or slot is None:
        return ""
    return next((reason for reason, nodes in first_reasons(cluster, pod, PROFILE)[1].items() if nodes >> slot & 1), "")


def _put_beside(cluster: Cluster, manifest: Object) -> None:
    metadata = manifest["metadata"]
    if manifest["kind"] == "Namespace":
        cluster.namespaces.put(Namespace(uid=metadata["name"], name=metadata["name"], labels=metadata["labels"]))
        return
    obj = _STORAGE[manifest["kind"]].decode(_bytes(manifest)).value
    if obj is None or isinstance(obj, Malformed):
        raise AssertionError(f"cannot read {manifest}: {obj}")
    cluster.put_storage(obj)


def _read(decoded: Decoded[Pod]) -> Pod | None:
    if isinstance(decoded.value, Malformed):
        raise TypeError(f"cannot read {decoded.key}: {decoded.value.reason}")
    return decoded.value


def _bytes(manifest: Object) -> bytes:
    return json.dumps(manifest).encode()
