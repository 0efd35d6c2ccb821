"""
A node's kubelet and AWS's device plugin, as far as they decide which devices a container really gets.

The kubelet admits pods in an order of its own and calls Allocate once for each container, with an amount and no pod.
The plugin then looks through the pods of the node that have not been served (`NEURON_ALLOCATED` is false), in the order
of `NEURON_ALLOC_TIME`, and takes the first that asks for this amount. For one device, or all, it takes what the kubelet
chose, which is here the ids in the pod's annotation.
"""

import attrs

from neuron_scheduler.model.annotations import AWS_NEURON_IDS, NEURON_ALLOC_TIME
from neuron_scheduler.model.pod import Pod


@attrs.define(eq=False)
class _Bound:
    """A pod on the node, with the annotated ids of its containers, and those that the plugin has not handed out yet."""

    pod: Pod
    annotated: list[tuple[int, ...]]
    unserved: list[tuple[int, ...]]
    admitted: bool = False


@attrs.define(eq=False)
class NodeAgent:
    """
    One node.

    Attributes:
        devices: how many it has.
        uses: the devices that the containers of each admitted pod really use, by uid.
        shared: devices that a second pod got while the first still used them.
        swapped: pods that got the ids of another pod.
    """

    devices: int
    uses: dict[str, set[int]] = attrs.field(factory=dict)
    shared: int = 0
    swapped: int = 0
    _bound: dict[str, _Bound] = attrs.field(factory=dict)

    @property
    def unstarted(self) -> list[Pod]:
        """The pods that are bound and not admitted, in the order of their Bindings."""
        return [bound.pod for bound in self._bound.values() if not bound.admitted]

    def bind(self, pod: Pod) -> None:
        """Take a pod with the annotations of its Binding."""
        assert pod.neuron is not None
        ids, containers = [int(device) for device in pod.allocation[AWS_NEURON_IDS].split(",")], list[tuple[int, ...]]()
        for count in pod.neuron.counts:
            containers.append(tuple(ids[:count]))
            ids = ids[count:]
        self._bound[pod.uid] = _Bound(pod, containers, list(containers))

    def admit(self, uid: str) -> Pod:
        """Start a pod, and return it with its new status."""
        bound = self._bound[uid]
        given = set[int]()
        for ids in bound.annotated:
            given |= set(ids) if len(ids) in (1, self.devices) else self._allocate(len(ids))
        self.swapped += given != {device for ids in bound.annotated for device in ids}
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
            (bound for bound in self._bound.values() if any(len(ids) == amount for ids in bound.unserved)),
            key=lambda bound: int(bound.pod.allocation[NEURON_ALLOC_TIME]),
        )
        if not candidates:
            return set()  # other pods got this pod's ids; a kubelet would reject it
        ids = next(ids for ids in candidates[0].unserved if len(ids) == amount)
        candidates[0].unserved.remove(ids)
        return set(ids)
