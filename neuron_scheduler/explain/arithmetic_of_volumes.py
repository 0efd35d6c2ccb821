"""Which volume keeps a pod from a node (see `arithmetic`)."""

from collections.abc import Callable, Iterator, Sequence

from neuron_scheduler.cluster.index.nodeset import NO_NODES, Slot, less, slots_of
from neuron_scheduler.cluster.refresh import claims_on
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import MEMORY
from neuron_scheduler.model.volumes import InlineVolume
from neuron_scheduler.model.wording import clipped, few, few_names, quantity
from neuron_scheduler.scheduling.plugins import volume_binding, volume_restrictions, volume_zone
from neuron_scheduler.scheduling.plugins.node_volume_limits import volumes_used
from neuron_scheduler.scheduling.plugins.static_volumes import mountable

_Sentence = Callable[[Slot, NodeInfo, Sequence[str]], str]


def restrictions(view: View, pod: Pod) -> _Sentence:
    """Return which disk or claim is in use, and by whom."""
    in_use = few([*_claims_in_use(view, pod)])

    def sentence(_slot: Slot, node_info: NodeInfo, reasons: Sequence[str]) -> str:
        if volume_restrictions.ONE_POD in reasons:
            return in_use
        wanted = {(disk.plugin, disk.handle) for disk in pod.constraints.disks}
        users = [
            pod_info.pod.key
            for pod_info in node_info.pod_infos.values()
            if any(isinstance(v, InlineVolume) and (v.plugin, v.handle) in wanted for v in pod_info.volumes)
        ]
        return f"its disk is used here by {few_names(users)}"

    return sentence


def _claims_in_use(view: View, pod: Pod) -> Iterator[str]:
    for key in volume_zone.lasting_claims(pod):
        claim = view.volumes.claim(key)
        if claim is None or "ReadWriteOncePod" not in claim.access_modes:
            continue
        rows = map(view.row, slots_of(view.postings(claims_on).get(key)))
        users = [p.pod.key for node_info in rows for p in node_info.pod_infos.values() if key in p.volumes]
        if users:
            yield f"claim {clipped(claim.name)} is for one pod, and {few_names(users)} uses it"


def limits(view: View, pod: Pod) -> _Sentence:
    """Return which driver is missing, or how many volumes it attaches."""
    wanted: dict[str, set[tuple[str, str]]] = {}
    for volume in view.volumes.held_by(pod):
        if not isinstance(volume, str):
            wanted.setdefault(volume.driver, set()).add((volume.driver, volume.handle))

    def sentence(_slot: Slot, node_info: NodeInfo, _reasons: Sequence[str]) -> str:
        storage, used = node_info.storage, volumes_used(node_info)
        parts = []
        for driver, volumes in wanted.items():
            attached = sum(of == driver for of, _ in used | storage.attachments)
            limit, new = storage.limits.get(driver, 0), len(volumes - used)
            if limit and attached + new > limit:
                parts.append(f"{clipped(driver)} attaches at most {limit}; {attached} attached, {new} more needed")
            elif driver not in storage.drivers:
                parts.append(f"the driver {clipped(driver)} is not installed here")
        return few(parts)

    return sentence


def binding(view: View, pod: Pod) -> _Sentence:
    """Return which claims' volumes cannot be used on a node, or cannot be made for it."""
    bound, waiting = volume_binding.claims_of(view, pod)
    elsewhere = []
    for claim in bound:
        volume = view.volumes.volume(claim.volume_name)
        there = NO_NODES if volume is None else mountable(view, volume, view.live)
        elsewhere.append((claim, less(view.live, there), "does not exist" if volume is None else "is for other nodes"))
    names = f"{'claim' if len(waiting) == 1 else 'claims'} " + few(
        [f"{clipped(claim.name)} ({quantity(MEMORY, claim.request)})" for claim in waiting]
    )

    def sentence(slot: Slot, _node_info: NodeInfo, reasons: Sequence[str]) -> str:
        parts = [
            f"volume {clipped(claim.volume_name)} of claim {clipped(claim.name)} {why}"
            for claim, nodes, why in elsewhere
            if nodes >> slot & 1
        ]
        if volume_binding.BIND_CONFLICT in reasons:
            parts.append(f"no volume is or can be made here for {names}")
        if volume_binding.NO_SPACE in reasons:
            parts.append(f"the driver has too little room here for {names}")
        return few(parts)

    return sentence


def zone(view: View, pod: Pod) -> _Sentence:
    """Return in which zones the pod's volumes are."""
    required = [label for key in volume_zone.lasting_claims(pod) for label in volume_zone.zones_of(view, key)]
    text = few([f"{key} in ({few_names(values)})" for key, values in required])
    return lambda _slot, _node_info, _reasons: f"the pod's volumes are in {text}"
