"""
The nodes that offer Neuron, and AWS's device plugin, which runs there and writes allocations.

The plugin is known by the names of AWS's manifests and by its image. Its account differs between distributions: with
an account that is not in `writers`, it cannot mark an allocation as handed out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs

from neuron_scheduler.commands.check.subjects import commands, known
from neuron_scheduler.commands.check.subjects.finding import Finding, Severity, error, note, ok, unknown, warning
from neuron_scheduler.commands.check.subjects.known import PLUGIN, PLUGIN_LABEL
from neuron_scheduler.commands.check.subjects.policies import writers_of
from neuron_scheduler.commands.check.subjects.snapshot import SeenWorkload, Snapshot, Unread
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


def of_nodes(snapshot: Snapshot) -> Iterator[Finding]:
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


DOCUMENTED_ACCOUNT = f"kube-system/{PLUGIN}"


def is_plugin(workload: SeenWorkload) -> bool:
    """Return whether a DaemonSet is the device plugin."""
    images = (container.image for container in workload.containers)
    return PLUGIN in workload.object.name or known.is_of_plugin(workload.labels, images)


def of_plugin(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield whether the plugin is there, and whether its account may write."""
    plugins = tuple(filter(is_plugin, snapshot.daemon_sets))
    of_pods = tuple(seen for seen in snapshot.system_pods if known.is_of_plugin(seen.pod.labels, seen.images))
    for plugin in plugins:
        yield from _state(plugin)
    if not (plugins or of_pods):
        yield from _absent(snapshot)
    accounts = {f"{plugin.object.namespace}/{plugin.account}" for plugin in plugins}
    yield from _writes(snapshot, sorted(accounts | {f"{seen.pod.namespace}/{seen.account}" for seen in of_pods}))


def _state(plugin: SeenWorkload) -> Iterator[Finding]:
    key = f"DaemonSet {plugin.object.key}"
    if plugin.ready < plugin.replicas:
        yield warning(
            "device-plugin-not-ready",
            f"{key}: {plugin.ready} of {plugin.replicas} pods are ready",
            advice="Nodes whose plugin is not ready start no pods with Neuron",
            command=f"kubectl describe daemonset --namespace {plugin.object.namespace} {plugin.object.name}",
        )
    else:
        yield ok("device-plugin", f"{key}: {plugin.ready} of {plugin.replicas} pods are ready")


def _absent(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield what it means that no DaemonSet and no pod is known as the plugin."""
    if isinstance(snapshot.daemon_sets, Unread):
        yield unknown("device-plugin-unknown", "Whether the device plugin runs is", snapshot.daemon_sets)
    elif any(machine_of(seen.node) for seen in snapshot.nodes):
        yield Finding(
            "device-plugin-unfamiliar",
            Severity.UNCHECKED if snapshot.installed else Severity.NOTE,
            "Nodes offer Neuron, but no DaemonSet is known to be AWS's device plugin: whether its account may write"
            " allocations is not known",
            f"Compare its account with {commands.WRITERS}",
        )
    elif any(has_neuron_type(seen.node) for seen in snapshot.nodes):
        yield warning("device-plugin-missing", "No DaemonSet is AWS's Neuron device plugin", advice="Install it")
    else:
        yield ok("device-plugin-not-needed", "No device plugin is installed, and no node needs one yet")


def _writes(snapshot: Snapshot, accounts: Sequence[str]) -> Iterator[Finding]:
    """Yield the accounts of the plugin that the policy on allocations does not let write."""
    if isinstance(snapshot.policies, Unread):
        return  # `policies` says so
    writers = writers_of(snapshot)
    unusual = [known.username(account) for account in accounts if account != DOCUMENTED_ACCOUNT]
    for account in accounts:
        if writers is not None and known.username(account) not in writers:
            yield error(
                "device-plugin-may-not-write",
                f"The policy {known.ALLOCATIONS} does not let the device plugin's account {account} write, so it cannot"
                " mark devices as handed out",
                advice=f"Add {known.username(account)!r} to {commands.WRITERS}",
                command=f"kubectl edit validatingadmissionpolicy {known.ALLOCATIONS}",
            )
    if writers is None and unusual:
        yield warning(
            "device-plugin-account",
            "The device plugin's account is not that of AWS's manifests, which our policy on allocations lets write",
            advice=f"Before you install, add its account to {commands.WRITERS}",
            objects=unusual,
        )
