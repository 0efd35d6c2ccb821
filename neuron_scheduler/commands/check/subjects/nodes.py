"""
The nodes that offer Neuron, and AWS's device plugin, which runs there and writes allocations.

The plugin is known by the names of AWS's manifests and by its image. Its account differs between distributions: with
an account that is not in `writers`, it cannot mark an allocation as handed out.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from neuron_scheduler.commands.check.subjects import commands, known
from neuron_scheduler.commands.check.subjects.finding import Finding, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.policies import writers_of
from neuron_scheduler.commands.check.subjects.snapshot import SeenWorkload, Snapshot, Unread
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.model.wording import count_text
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine, doubts, machine_of

FAMILIES: Final = ("inf", "trn")
_PODS: Final = f"kubectl get pods --all-namespaces --selector {'='.join(known.PLUGIN_LABEL)} --output wide"
_NODE: Final = "kubectl describe node NODE"


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


def machines(nodes: Iterable[Node]) -> tuple[Machines, ...]:
    counts = Counter(_identity(machine) for node in nodes if (machine := machine_of(node)) is not None)
    return tuple(Machines(name, number, *sizes) for (name, *sizes), number in sorted(counts.items()))


def _identity(machine: Machine) -> tuple[str, int, int]:
    devices, cores = (machine.size(unit) if unit in machine.units else 0 for unit in (Unit.DEVICE, Unit.CORE))
    return machine.instance_type, devices, cores


def of_nodes(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.nodes, Unread):
        yield unknown("nodes-unknown", "Nodes are", snapshot.nodes)
        return
    found = machines(snapshot.nodes)
    for kind in found:
        yield ok("machines", _machines_text(kind))
    if not found and not any(map(has_neuron_type, snapshot.nodes)):
        yield note(
            "no-neuron-nodes",
            f"No node has Neuron devices ({count_text(len(snapshot.nodes), 'node')} in all)",
            advice="If an autoscaler adds them when pods ask for Neuron, this is as it should be",
        )
    yield from _faults(sorted(snapshot.nodes, key=lambda node: node.name), {*snapshot.publishing})


def _machines_text(kind: Machines) -> str:
    sizes = [count_text(kind.devices, "device")] if kind.devices else []
    sizes += [count_text(kind.cores, "core")] if kind.cores else []
    each = " each" if kind.nodes > 1 else ""
    return (
        f"{kind.instance_type or 'no instance type'}: {count_text(kind.nodes, 'node')} with {' and '.join(sizes)}{each}"
    )


def _faults(nodes: list[Node], publishing: set[str]) -> Iterator[Finding]:
    unreadable = [f"{node.name}: {node.refusal}" for node in nodes if node.refusal]
    if unreadable:
        yield warning("unreadable-nodes", "Nodes that cannot be read get no new pods", objects=unreadable)
    nodes = [node for node in nodes if not node.refusal]
    absent = sorted({node.name for node in nodes if has_neuron_type(node) and machine_of(node) is None} - publishing)
    if absent:
        yield warning(
            "nodes-without-device-plugin",
            f"{count_text(len(absent), 'node has', 'nodes have')} a Neuron instance type but no capacity for Neuron",
            advice="Neither the device plugin nor AWS's DRA driver runs there, or it has no device to offer",
            command=_PODS,
            objects=absent,
        )
    doubtful = [doubt.removeprefix("node ") for doubt in map(doubts, nodes) if doubt]
    if doubtful:
        yield warning("implausible-capacity", "The capacity is not that of a known instance type", objects=doubtful)
    short = [
        f"{node.name}: {offered} of {there} {resource}"
        for node in nodes
        for resource in (NEURON_DEVICE, NEURON_CORE)
        if (offered := node.allocatable.get(resource, 0)) < (there := node.capacity.get(resource, 0))
    ]
    if short:
        yield warning(
            "devices-not-allocatable",
            "Devices or cores are not allocatable: the device plugin reports them as unhealthy",
            command=_NODE,
            objects=short,
        )
    faulty = [f"{node.name}: {node.neuron_fault}" for node in nodes if node.neuron_fault]
    if faulty:
        yield warning(
            "unhealthy-nodes",
            f"{count_text(len(faulty), 'node reports', 'nodes report')} a fault; no new pod with Neuron goes there",
            advice="Replace the instance",
            command=_NODE,
            objects=faulty,
        )


def of_plugin(snapshot: Snapshot) -> Iterator[Finding]:
    if isinstance(snapshot.daemon_sets, Unread):
        yield unknown("device-plugin-unknown", "Whether the device plugin runs is", snapshot.daemon_sets)
        return
    for plugin in snapshot.daemon_sets:
        yield from _state(plugin)
    publishing = {*snapshot.publishing}
    found = [
        node for node in snapshot.nodes if machine_of(node) or (has_neuron_type(node) and node.name not in publishing)
    ]
    key, value = known.AUTO_MODE
    built_in = [node.name for node in found if node.labels.get(key) == value]
    if built_in:
        yield warning(
            "device-plugin-built-in",
            f"{count_text(len(built_in), 'node is', 'nodes are')} of EKS Auto Mode: whether its built-in device plugin"
            " gives pods the ids that are allocated was never verified",
            advice="Compare AWS_NEURON_IDS of a pod there with neuron-ls in it, or use a managed node group",
            objects=sorted(built_in),
        )
    if not snapshot.daemon_sets and len(built_in) < len(found):
        yield warning(
            "device-plugin-missing",
            "No Neuron device plugin was found",
            advice=f"Install it, or add your plugin's ServiceAccount to {commands.WRITERS}",
        )
    if not isinstance(snapshot.policies, Unread):  # else `policies` says so
        yield from _writes(writers_of(snapshot), {f"{each.namespace}/{each.account}" for each in snapshot.daemon_sets})


def _state(plugin: SeenWorkload) -> Iterator[Finding]:
    message = f"DaemonSet {plugin.key}: {plugin.ready} of {plugin.replicas} pods are ready"
    if plugin.ready < plugin.replicas:
        yield warning(
            "device-plugin-not-ready",
            message,
            advice="Nodes whose plugin is not ready start no pods with Neuron",
            command=f"kubectl describe daemonset --namespace {plugin.namespace} {plugin.name}",
        )
    else:
        yield ok("device-plugin", message)


def _writes(writers: tuple[str, ...] | None, accounts: Iterable[str]) -> Iterator[Finding]:
    """Yield the accounts of the plugin that our policy on allocations does not let write, or will not when it comes."""
    installed = writers is not None
    letting = (known.username(f"kube-system/{known.PLUGIN}"),) if writers is None else writers
    for account in sorted(accounts):
        user = known.username(account)
        if user not in letting:
            make = error if installed else warning
            yield make(
                "device-plugin-may-not-write",
                f"The policy {known.ALLOCATIONS} does not let the device plugin's account {account} write, so it cannot"
                " mark devices as handed out",
                advice=f"{'Add' if installed else 'Before you install, add'} {user!r} to {commands.WRITERS}",
            )
