"""
The machines of open requests on a fork: first each gets the pods that it was asked for.

So a request keeps its pods from one plan to the next, and a machine that others would fill as well is not asked for
twice. Refuses to guess a machine of a type that nobody knows: it counts as serving its pods.
"""

from collections.abc import Generator, Mapping, Sequence

import attrs

from neuron_scheduler.capacity.lines import Line, leave
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.offers import Offer
from neuron_scheduler.capacity.packing import Batch, Packed, Packing
from neuron_scheduler.model.pod import Pod


@attrs.define(eq=False)
class OpenRequests:
    """Open requests, with the pods that would be on their machines."""

    _packing: Packing
    _open: Mapping[str, MachineNeed]
    _by_node: dict[str, str] = attrs.field(factory=dict)  # the id of the request, by the name of its machine
    _serving: dict[str, list[str]] = attrs.field(factory=dict)  # uids, by the id of the request

    def fill(self, lines: Sequence[Line]) -> Generator[None, None, None]:
        """
        Add a machine for each request, and place its pods there as far as they still wait in the lines.

        Pods may depend on pods of later requests: those that find no place are tried once more at the end.
        """
        for name, need in self._open.items():
            batches = _own(need, lines)
            offer = yield from self._offer(need, batches)
            if offer is None:
                leave(lines, self._serving.setdefault(name, [pod.uid for _, pods in batches for pod in pods]))
                continue
            packed = yield from self._packing.add(offer, batches)
            self._by_node[packed.node_name] = name
            self._note_all(packed, lines)
            yield
        for node_name, name in self._by_node.items():
            batches = _own(self._open[name], lines)
            if batches:
                self._note_all((yield from self._packing.filled_up(node_name, batches)), lines)

    def _note_all(self, packed: Packed, lines: Sequence[Line]) -> None:
        """Note the places of the pods of a machine, and take them from their lines."""
        for _, pod in packed.load:
            self.note(packed.node_name, pod)
        leave(lines, [pod.uid for _, pod in packed.load])

    def trust(self, lines: Sequence[Line]) -> None:
        """
        Believe that a request which serves nobody serves those of its pods that still have no place.

        Where pods depend on each other the order of the machines decides: the same pod is not asked for once more.
        """
        for name, need in self._open.items():
            uids = [pod.uid for _, pods in _own(need, lines) for pod in pods]
            if uids and not self._serving.get(name):
                self._serving[name] = uids
                leave(lines, uids)

    def note(self, node_name: str, pod: Pod) -> bool:
        """Note where a pod has found a place; return whether that is the machine of a request."""
        name = self._by_node.get(node_name)
        if name is not None:
            self._serving.setdefault(name, []).append(pod.uid)
        return name is not None

    def serving(self) -> dict[str, tuple[str, ...]]:
        """Return the uids of the pods of each request that has any."""
        return {name: tuple(uids) for name, uids in self._serving.items() if uids}

    def _offer(self, need: MachineNeed, batches: Sequence[Batch]) -> Generator[None, None, Offer | None]:
        """Return the machine that a request would get: one that holds all its pods, or else most of them."""
        meeting = [offer for offer in self._packing.offers.offers if _is_met_by(need, offer)]
        if len(meeting) < 2 or not batches:
            return meeting[0] if meeting else None
        wanted = sum(len(tuple(pods)) for _, pods in batches)
        best, most = meeting[0], -1
        for offer in meeting:
            packed = yield from self._packing.tried(offer, batches)
            if len(packed.load) > most:
                best, most = offer, len(packed.load)
            if most == wanted:
                break
        return best


def _is_met_by(need: MachineNeed, offer: Offer) -> bool:
    """Return whether a machine is as large as was asked for, of a type and in a zone that were."""
    if not need.is_met_by(offer.fresh.node):
        return False
    return all(offer.silicon.get(name, 0) >= amount for name, amount in need.silicon.items())


def _own(need: MachineNeed, lines: Sequence[Line]) -> list[tuple[Line, tuple[Pod, ...]]]:
    """Return the pods that a machine was asked for and that still wait, in the order in which machines are packed."""
    uids = {pod.uid for pod in need.pods}
    own = [(line, tuple(pod for pod in line.pods if pod.uid in uids)) for line in lines]
    return sorted(((line, pods) for line, pods in own if pods), key=lambda batch: -batch[0].size)
