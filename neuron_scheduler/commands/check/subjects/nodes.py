"""Which machines the nodes are, and which of them offer no Neuron, less than they have, or report a fault."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from neuron_scheduler.commands.check.subjects.finding import Finding, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import PLUGIN_LABEL
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot, Unread
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import NEURON_HEALTH, AnnotatedNode, Node
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.model.wording import counted
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine, doubts, machine_of

FAMILIES: Final = ("inf", "trn")
_PODS: Final = f"kubectl get pods --all-namespaces --selector {PLUGIN_LABEL[0]}={PLUGIN_LABEL[1]} --output wide"


@attrs.frozen
class Machines:
    """Nodes of one instance type and one number of devices and cores."""

    instance_type: str
    nodes: int
    devices: int
    cores: int


def has_neuron_type(node: Node) -> bool:
    """Return whether the label of the instance type says that the node has Neuron devices."""
    name = node.instance_type
    return name in INSTANCE_TYPES or (name.startswith(FAMILIES) and name[3:4].isdigit())


def machines(nodes: Iterable[AnnotatedNode]) -> tuple[Machines, ...]:
    """Return the nodes that offer Neuron, counted by instance type, devices and cores."""
    counts = Counter(_identity(machine) for seen in nodes if (machine := machine_of(seen.node)) is not None)
    return tuple(Machines(name, number, *sizes) for (name, *sizes), number in sorted(counts.items()))


def _identity(machine: Machine) -> tuple[str, int, int]:
    devices, cores = (machine.size(unit) if unit in machine.units else 0 for unit in (Unit.DEVICE, Unit.CORE))
    return machine.instance_type, devices, cores


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield the machines, and what is wrong with some nodes."""
    if isinstance(snapshot.nodes, Unread):
        yield unknown("nodes-unknown", "Nodes are", snapshot.nodes)
        return
    found = machines(snapshot.nodes)
    for kind in found:
        yield ok("machines", _described(kind))
    silent = [seen.node for seen in snapshot.nodes if has_neuron_type(seen.node) and machine_of(seen.node) is None]
    if not found and not silent:
        yield note(
            "no-neuron-nodes",
            f"No node has Neuron devices ({counted(len(snapshot.nodes), 'node')} in all)",
            advice="If an autoscaler adds them when pods ask for Neuron, this is as it should be",
        )
    yield from _without_plugin(snapshot, [node for node in silent if not node.refusal])
    yield from _doubtful(snapshot.nodes)
    yield from _unhealthy(snapshot.nodes)


def _described(kind: Machines) -> str:
    sizes = [counted(kind.devices, "device")] if kind.devices else []
    sizes += [counted(kind.cores, "core")] if kind.cores else []
    each = " each" if kind.nodes > 1 else ""
    return f"{kind.instance_type or 'no instance type'}: {counted(kind.nodes, 'node')} with {' and '.join(sizes)}{each}"


def _without_plugin(snapshot: Snapshot, silent: list[Node]) -> Iterator[Finding]:
    """Yield the nodes with a Neuron instance type and no capacity: with DRA only, or without the device plugin."""
    slices = snapshot.slices
    if isinstance(slices, Unread) and silent:
        yield unknown("dra-unknown", "Whether nodes offer Neuron through DRA is", slices)
    through_dra = sorted(node.name for node in silent if node.name in slices)
    if through_dra:
        yield note(
            "dra-only-nodes",
            f"{counted(len(through_dra), 'node offers', 'nodes offer')} Neuron only through DRA (neuron.aws.com)",
            advice="This scheduler gives them no pods with Neuron; pods with resourceClaims need the default scheduler",
            objects=through_dra,
        )
    absent = sorted(node.name for node in silent if node.name not in slices)
    if absent:
        yield warning(
            "nodes-without-device-plugin",
            f"{counted(len(absent), 'node has', 'nodes have')} a Neuron instance type but no capacity for Neuron",
            advice="The device plugin does not run there, or has no device to offer",
            command=_PODS,
            objects=absent,
        )


def _doubtful(nodes: Iterable[AnnotatedNode]) -> Iterator[Finding]:
    """Yield what is implausible about a capacity, and devices that are not allocatable."""
    by_doubt: dict[str, list[str]] = defaultdict(list)
    unreadable, short = [], []
    for node in (seen.node for seen in nodes):
        if node.refusal:
            unreadable.append(f"{node.name}: {node.refusal}")
            continue
        doubt = doubts(node)
        if doubt is not None:
            by_doubt[doubt.removeprefix(f"node {node.name}: ")].append(node.name)
        for resource in (NEURON_DEVICE, NEURON_CORE):
            offered, there = node.allocatable.get(resource, 0), node.capacity.get(resource, 0)
            if offered < there:
                short.append(f"{node.name}: {offered} of {there} {resource}")
    for doubt, names in sorted(by_doubt.items()):
        yield warning(
            "implausible-capacity", f"The capacity is not that of the instance type: {doubt}", objects=sorted(names)
        )
    if unreadable:
        yield warning("unreadable-nodes", "Nodes that cannot be read get no new pods", objects=unreadable)
    if short:
        yield warning(
            "devices-not-allocatable",
            "Devices or cores are not allocatable: the device plugin reports them as unhealthy",
            command="kubectl describe node NODE",
            objects=sorted(short),
        )


def _unhealthy(nodes: Iterable[AnnotatedNode]) -> Iterator[Finding]:
    faulty = sorted(f"{seen.node.name}: {seen.health or 'no reason'}" for seen in nodes if seen.node.neuron_unhealthy)
    if faulty:
        yield warning(
            "unhealthy-nodes",
            f"{counted(len(faulty), 'node reports', 'nodes report')} a fault of a Neuron device"
            f" (condition {NEURON_HEALTH}) and gets no new pods with Neuron",
            advice="Replace the instance",
            objects=faulty,
        )
