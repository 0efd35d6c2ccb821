"""
Every allocation that we write is legal on its node's machine, and complete.

At the commit of a Binding the pod has one entry for each container that asks, a legal set of ids each, the same ids in
the form that AWS's device plugin reads, devices or cores by what it asks for, and a time that no other live pod of the
node has. The node may have changed since the decision, so any state of it that was current since then is as good.
"""

import re
from collections.abc import Iterator
from typing import Final

import attrs

from neuron_scheduler.neuron.catalog import Machine
from tests.simulation.oracles.change import Change, Object, Oracle, annotations_of, named
from tests.simulation.oracles.node_states import NodeStates
from tests.simulation.oracles.reading import (
    ALLOC_TIME,
    ALLOCATED,
    ALLOCATION,
    DOCUMENTED,
    IDS,
    Allocation,
    Asked,
    allocation_of,
    asked_of,
    bound_by_us,
    has_ended,
    listed,
    machine_of,
    node_name_of,
)
from tests.support.neuron_oracle import Kind, faults, ids_in

_TIME: Final = re.compile(r"[1-9][0-9]{17,18}", re.ASCII)


@attrs.define(eq=False, kw_only=True)
class Allocations(Oracle):
    """
    Reads what our Bindings write.

    Attributes:
        nodes: the states of the nodes; it must see each change before this oracle.
    """

    nodes: NodeStates
    _times: dict[str, tuple[str, str]] = attrs.field(factory=dict)  # node and NEURON_ALLOC_TIME by uid, of live pods

    def changed(self, change: Change) -> None:
        """Judge a Binding of ours."""
        if change.kind != "Pod":
            return
        pod = change.after
        if pod is None or has_ended(pod):
            self._times.pop(change.uid, None)
        elif bound_by_us(change.previous, pod):
            for fault in self._faults(change, pod):
                self.violated(f"{named(pod)} on {node_name_of(pod)}: {fault}")

    def _faults(self, change: Change, pod: Object) -> Iterator[str]:
        asked = asked_of(pod)
        if asked is None:
            if annotations_of(pod).get(ALLOCATION) is not None:
                yield "it has an allocation and asks for no Neuron that can be read"
            return
        own = allocation_of(pod, asked.unit)
        if own is None:
            yield f"its own annotation cannot be read: {annotations_of(pod).get(ALLOCATION)!r}"
            return
        yield from _incomplete(pod, asked, own)
        yield from self._time(change.uid, pod)
        machines = {machine_of(node) for node in self.nodes.since_decision(change)} - {None}
        verdicts = [list(_illegal(machine, asked, own)) for machine in machines if machine is not None]
        if not verdicts:
            yield "its node offered no Neuron that can be read"
        elif all(verdicts):
            yield from min(verdicts, key=len)

    def _time(self, uid: str, pod: Object) -> Iterator[str]:
        text, node = annotations_of(pod).get(ALLOC_TIME, ""), node_name_of(pod)
        if not _TIME.fullmatch(text):
            yield f"{ALLOC_TIME} is {text!r}"
        elif (node, text) in self._times.values():
            yield f"another live pod of the node has the same {ALLOC_TIME}, {text}"
        self._times[uid] = (node, text)


def _incomplete(pod: Object, asked: Asked, own: Allocation) -> Iterator[str]:
    """Yield what the annotations lack, or say in two ways."""
    if own.node != node_name_of(pod):
        yield f"its allocation is for node {own.node}"
    if sorted(own.containers) != sorted(asked.names):
        yield f"it has ids for {sorted(own.containers)}, and {sorted(asked.names)} ask"
        return
    annotations = annotations_of(pod)
    side_by_side = [i for kind in (Kind.SIDECAR, Kind.APP) for i in _given(asked, own, kind)]
    text = ",".join(map(str, side_by_side if len(side_by_side) == asked.total else own.ids))
    for key in (IDS, DOCUMENTED[asked.unit]):
        if annotations.get(key) != text:
            yield f"{key} is {annotations.get(key)!r}, its allocation says {text!r}"
    other = next(key for unit, key in DOCUMENTED.items() if unit is not asked.unit)
    if listed(annotations.get(other)) is not None:
        yield f"it has {other} too"
    if annotations.get(ALLOCATED) != "false":
        yield f"{ALLOCATED} is {annotations.get(ALLOCATED)!r}"


def _given(asked: Asked, own: Allocation, kind: Kind) -> Iterator[int]:
    for name, piece in zip(asked.names, asked.pieces, strict=True):
        if piece.kind is kind:
            yield from own.containers[name]


def _illegal(machine: Machine, asked: Asked, own: Allocation) -> Iterator[str]:
    """Yield the rules of the machine that the ids break."""
    if asked.unit not in machine.units:
        yield f"the node serves no {asked.unit}s"
        return
    if not set(asked.names) <= set(own.containers):
        return  # reported as incomplete
    every = ids_in(machine, int(machine.all_cores), asked.unit)
    given = [own.containers[name] for name in asked.names]
    yield from faults(machine, asked.unit, asked.pieces, free=every, given=given, ids=own.ids)
