"""
No core is held by two live allocations.

An allocation lives from the commit of its Binding until the pod has ended or is gone. Two of our own never overlap. One
of ours overlaps another scheduler's only if that pod was bound so shortly before ours was sent first that we could not
have been told (a Binding in doubt is sent again unchanged, because it may have succeeded); what other schedulers do to
each other, or to us, is theirs. A node that is recreated under its pods keeps them, and with them what
they hold, unless it comes back as another machine. A Binding sent before we could know of that one is not judged.
"""

from collections.abc import Mapping

import attrs

from neuron_scheduler.neuron.catalog import Machine
from tests.simulation.oracles.change import Change, Object, Oracle, named
from tests.simulation.oracles.node_states import NodeStates
from tests.simulation.oracles.reading import (
    asked_of,
    asks_for_neuron,
    bound_by_us,
    has_ended,
    held_by,
    machine_of,
    node_name_of,
)


@attrs.frozen
class Held:
    """
    What a live pod holds.

    Attributes:
        cores: as a mask; None if that is unknown.
        machine: to which the mask belongs; None if the node had none that can be read.
        ours: we have bound it.
        since: when it got its node, on the clock of the history.
    """

    pod: str
    cores: int | None
    machine: Machine | None
    ours: bool
    since: float


@attrs.define(eq=False, kw_only=True)
class Cores(Oracle):
    """
    Watches who holds which cores.

    Attributes:
        nodes: knows when a Binding was sent first, and after how long we must know of another scheduler's.
    """

    nodes: NodeStates
    _machines: dict[str, Machine | None] = attrs.field(factory=dict)  # by the name of the node
    _replaced_at: dict[str, float] = attrs.field(factory=dict)  # by the name of a node that became another machine
    _held: dict[str, dict[str, Held]] = attrs.field(factory=dict)  # by the name of the node and the pod's uid
    _where: dict[str, str] = attrs.field(factory=dict)  # the name of the node, by the pod's uid

    def changed(self, change: Change) -> None:
        """Follow nodes and pods; a Binding of ours is judged."""
        if change.kind == "Node" and change.after is not None:
            name, machine = change.key[1], machine_of(change.after)
            if self._machines.get(name, machine) != machine:
                self._replaced_at[name] = change.at
            self._machines[name] = machine
        elif change.kind == "Pod":
            pod = change.after
            if pod is None or has_ended(pod):
                self._ended(change.uid)
            elif node_name_of(pod) and change.uid not in self._where and asks_for_neuron(pod):
                self._bound(change, pod)

    def _ended(self, uid: str) -> None:
        node = self._where.pop(uid, None)
        if node is not None:
            del self._held[node][uid]

    def _bound(self, change: Change, pod: Object) -> None:
        node = node_name_of(pod)
        machine, ours = self._machines.get(node), bound_by_us(change.previous, pod)
        cores = None if machine is None else held_by(pod, machine)
        held = Held(named(pod), cores, machine, ours=ours, since=change.at)
        others = self._held.setdefault(node, {})
        known = self.nodes.decided_at(change) - self.nodes.told_within
        if ours and self._replaced_at.get(node, known) <= known:
            self._judge(node, pod, held, others, known=known)
        others[change.uid] = held
        self._where[change.uid] = node

    def _judge(self, node: str, pod: Object, held: Held, others: Mapping[str, Held], *, known: float) -> None:
        for other in others.values():
            if other.machine != held.machine or held.cores is None:
                continue  # the ids of one have no meaning on the other's machine; `allocations` judges what is unknown
            if not other.ours and other.since > known:
                continue
            whose = "ours" if other.ours else "another scheduler's"
            if other.cores is None:
                asked = asked_of(pod)
                if asked is not None and asked.total > 1:
                    self.violated(
                        f"{held.pod} on {node} got {asked.total} ids beside {other.pod}, whose ids are unknown"
                    )
            elif held.cores & other.cores:
                both = _ids(held.cores & other.cores)
                self.violated(f"{held.pod} and {other.pod} ({whose}) both hold cores {both} of {node}")


def _ids(mask: int) -> str:
    return ",".join(str(i) for i in range(mask.bit_length()) if mask >> i & 1)
