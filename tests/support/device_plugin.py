"""
A node's kubelet and AWS's device plugin, as far as they decide which devices a container is really given.

The kubelet admits pods in an order of its own and calls Allocate once for each container, with an amount and no pod.
The plugin then looks through the pods of the node that have not been served (`NEURON_ALLOCATED` is false), in the order
of `NEURON_ALLOC_TIME`, and takes the first that asks for this amount. For one device, or all, it takes what the kubelet
chose, which is here what the pod was told.
"""

import attrs

from neuron_scheduler.model.annotations import AWS_NEURON_IDS, NEURON_ALLOC_TIME
from neuron_scheduler.model.pod import Pod


@attrs.define(eq=False)
class _Bound:
    """A pod on the node, with the ids of its containers, and those that the plugin has yet to hand out."""

    pod: Pod
    told: list[tuple[int, ...]]
    unserved: list[tuple[int, ...]]
    admitted: bool = False


@attrs.define(eq=False)
class NodeAgent:
    """
    One node.

    Attributes:
        devices: how many it has.
        uses: the devices that the containers of each admitted pod really use, by uid.
        shared: devices that were given to a second pod while a first still used them.
        swapped: pods that were given another's ids.
    """

    devices: int
    uses: dict[str, set[int]] = attrs.field(factory=dict)
    shared: int = 0
    swapped: int = 0
    _bound: dict[str, _Bound] = attrs.field(factory=dict)

    @property
    def unstarted(self) -> list[Pod]:
        """The pods that are bound and not admitted, in the order of their Bindings."""
        return [each.pod for each in self._bound.values() if not each.admitted]

    def bind(self, pod: Pod) -> None:
        """Take a pod with the annotations of its Binding."""
        assert pod.neuron is not None
        ids, containers = [int(each) for each in pod.allocation[AWS_NEURON_IDS].split(",")], list[tuple[int, ...]]()
        for count in pod.neuron.counts:
            containers.append(tuple(ids[:count]))
            ids = ids[count:]
        self._bound[pod.uid] = _Bound(pod, containers, list(containers))

    def admit(self, uid: str) -> Pod:
        """Start a pod, and return it as its status then tells."""
        bound = self._bound[uid]
        given = set[int]()
        for ids in bound.told:
            given |= set(ids) if len(ids) in (1, self.devices) else self._allocate(len(ids))
        self.swapped += given != {each for ids in bound.told for each in ids}
        self.shared += sum(len(given & used) for used in self.uses.values())
        self.uses[uid] = given
        bound.admitted = True
        return attrs.evolve(bound.pod, admitted=True)

    def end(self, uid: str) -> None:
        """Forget a pod that has ended."""
        self._bound.pop(uid)
        self.uses.pop(uid, None)

    def _allocate(self, amount: int) -> set[int]:
        candidates = sorted(
            (each for each in self._bound.values() if any(len(ids) == amount for ids in each.unserved)),
            key=lambda each: int(each.pod.allocation[NEURON_ALLOC_TIME]),
        )
        if not candidates:
            return set()  # others were given the ids of this pod, which a kubelet would reject
        ids = next(ids for ids in candidates[0].unserved if len(ids) == amount)
        candidates[0].unserved.remove(ids)
        return set(ids)
