"""
Waiting pods in lines, which of them an autoscaler counts onto existing nodes, and the others packed onto new machines.

Karpenter and Cluster Autoscaler simulate the default filters, with amounts of devices in place of blocks. `hidden_pods`
does the same with our filters: a pod without `neuron` that requests as many devices passes NeuronTopology. Pods are
counted in Karpenter's order (`pkg/controllers/provisioning/scheduling`): descending by cpu and memory. Karpenter treats
preferences as requirements, which is not counted: for a pod with some it may buy a machine of its own.

Packing follows the real rules: each pod is decided and assumed on a fork. Machines are filled one after the other. The
first pod that is left opens the next one: the smallest that would hold all pods like it, else the largest. Large
requests are packed first, which needs the fewest machines where the sizes divide each other, as blocks of a torus do.
For runs of any length on a line it is first-fit-decreasing, with its known bound.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable, Sequence
from functools import partial
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, join, known_types, nodes_of_type
from neuron_scheduler.cluster.index.nodeset import NO_NODES, lowest_slot
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.node import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Constraints, Pod, assigned_pod
from neuron_scheduler.model.resources import CPU, MEMORY
from neuron_scheduler.model.selectors import NO_LABELS
from neuron_scheduler.scheduling.cycle.filters import nodes_that_pass
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import named_types
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import refusal_of_pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.signature import Signature, signature_of
from neuron_scheduler.scheduling.cycle.what_if import Placer, new_node_takes, nodes_like_new_ones

UNSCHEDULABLE: Final = "Unschedulable"
_PODS_A_STEP: Final = 50
_NO_PLUGINS: Final[frozenset[str]] = frozenset()
_CORES_PER_DEVICE: Final = 2
"""For the order of requests in cores among those in devices only: the least that a machine has for each device."""

_LATE: Final = float(1 << 50)


@attrs.define(eq=False)
class PackingLine:
    """
    Pods that the filters cannot tell apart: one refusal answers for all of them.

    Attributes:
        pods: those without a place, the most urgent first.
    """

    key: Signature
    request: NeuronRequest
    profile: Profile
    pods: deque[Pod] = attrs.field(factory=deque)

    @property
    def size(self) -> int:
        """The size of the request, to be compared with others; twice the devices, or the cores."""
        return self.request.total * (_CORES_PER_DEVICE if self.request.unit is Unit.DEVICE else 1)

    def leave(self, pods: Iterable[Pod]) -> None:
        gone = {pod.uid for pod in pods}
        self.pods = deque(pod for pod in self.pods if pod.uid not in gone)


def lines_of(
    cluster: Cluster, pods: Iterable[Pod], profile_of: Callable[[Pod], Profile]
) -> Generator[None, None, list[PackingLine]]:
    """Put pods with Neuron, given in the order of their urgency, into lines; large requests are packed first."""
    lines: dict[Signature, PackingLine] = {}
    for position, pod in enumerate(pods, start=1):
        if pod.neuron is not None:
            key = _key_of(cluster, pod, profile_of(pod))
            if key not in lines:
                lines[key] = PackingLine(key, pod.neuron, profile_of(pod))
            lines[key].pods.append(pod)
        if position % _PODS_A_STEP == 0:
            yield
    return sorted(lines.values(), key=lambda line: -line.size)  # stable: urgency decides among equals


def is_seen(cluster: Cluster, pod: Pod) -> bool:
    """
    Return whether a pod with Neuron waits for a place, and autoscalers look at it (Karpenter: `IsProvisionable`).

    The condition's reason decides; a pod with a nominated node has a place, and pods of nodes come with their node.
    """
    condition = pod.scheduled
    if pod.neuron is None or condition is None or condition.reason != UNSCHEDULABLE:
        return False
    if pod.gates or pod.refusal or pod.terminating or pod.is_of_every_node:
        return False
    has_place = pod.nominated_node_name or cluster.node_of(pod.uid) or cluster.is_nominated(pod.uid)
    return not has_place


def hidden_pods(
    fork: Cluster, pods: Iterable[Pod], profile_of: Callable[[Pod], Profile]
) -> Generator[None, None, frozenset[str]]:
    """
    Return the uids of the pods with Neuron for which an autoscaler adds nothing, because by count they fit.

    The pods are counted one after the other, on a fork that it changes. It yields where other tasks may run.
    """
    found: set[str] = set()
    refused: set[Signature] = set()
    warmup = IndexWarmup()
    for position, pod in enumerate(sorted(pods, key=_packing_order), start=1):
        profile, plain = profile_of(pod), attrs.evolve(pod, neuron=None)
        key = _key_of(fork, pod, profile)
        if has_named_node(pod.constraints):
            found.add(pod.uid)  # Karpenter ignores it, and it takes no room
        elif key not in refused:
            yield from warmup.prepare(fork, plain, profile)
            view, fitting = fork.view, NO_NODES
            if refusal_of_pod(view, plain, profile) is None:
                fitting = nodes_that_pass(view, plain, profile.steps_for(plain).accepts, view.live)
            if fitting:
                fork.assume(assigned_pod(plain, view.row(lowest_slot(fitting)).node.name, NO_LABELS))
                found.add(pod.uid)
            else:
                refused.add(key)
            yield
        if position % _PODS_A_STEP == 0:
            yield
    return frozenset(found)


def has_named_node(constraints: Constraints) -> bool:
    """
    Return whether a pod requires a node by its name.

    Karpenter ignores pods that name the host name's label in any term, and terms about fields.
    """
    return HOSTNAME_LABEL in constraints.node_selector or any(
        term.fields or any(requirement.key == HOSTNAME_LABEL for requirement in term.expressions)
        for term in constraints.required_terms or ()
    )


def has_pod_terms(constraints: Constraints) -> bool:
    return bool(constraints.affinity or constraints.anti_affinity or constraints.spread)


def _key_of(cluster: Cluster, pod: Pod, profile: Profile) -> Signature:
    """Return what decides which nodes take a pod; its namespace and labels count only where a filter may read them."""
    apart = cluster.view.has_terms(TermKind.ANTI_AFFINITY)
    looks_further = apart or has_pod_terms(pod.constraints) or pod.constraints.volume_claims
    return signature_of(pod, frozenset(profile.plugins) if looks_further else _NO_PLUGINS)


def _packing_order(pod: Pod) -> tuple[int, int, float, str]:
    return -pod.requests.get(CPU, 0), -pod.requests.get(MEMORY, 0), pod.created, pod.uid


@attrs.frozen(eq=False)
class PackedMachine:
    """
    A machine with its pods, in the order in which it got them.

    Attributes:
        alike: the machines of this type that take the first pod; each takes each of the pods.
    """

    machine: FreshNode
    alike: tuple[FreshNode, ...]
    pods: tuple[Pod, ...]


@attrs.define(eq=False)
class Packing:
    """A fork of the cluster to which machines are added, with all that was placed so far."""

    fork: Cluster
    view: View  # of the cluster without these machines, which are like its nodes
    _fresh: dict[Hashable, FreshNode] = attrs.field(factory=dict)  # by their group
    _joined: int = 0
    _taking: dict[Signature, tuple[FreshNode, ...]] = attrs.field(factory=dict)
    _placer: Placer = attrs.Factory(lambda self: Placer(self.fork), takes_self=True)

    def place(self, line: PackingLine) -> Generator[None, None, str]:
        """Place the first pod of a line where the scheduler would: return the node's name, or empty and leave it."""
        result = yield from self._placer.place(line.pods[0], line.profile)
        if not isinstance(result, Decision):
            return ""
        line.pods.popleft()
        return result.node_name

    def machines_like(self, types: Iterable[str], pod: Pod) -> Generator[None, None, list[FreshNode]]:
        """Return machines of some types, one of each group of nodes that a pod may use; the types are without `ml.`."""
        yield from self.view.prepare(partial(nodes_like_new_ones, pod=pod))
        found, among = list[FreshNode](), nodes_like_new_ones(self.view, pod)
        for name in types:
            for fresh in fresh_nodes(self.view, name, among, self._fresh):
                found.append(fresh)
                yield
        return found

    def machines_for(self, line: PackingLine, pod: Pod) -> Generator[None, None, tuple[FreshNode, ...]]:
        """
        Return the machines that take a pod, computed once for a line unless its pods look at others.

        A type that the cluster lacks is only for pods that name it and no other: perhaps no autoscaler has it.
        """
        known = self._taking.get(line.key)
        if known is not None:
            return known
        yield from self._placer.warmup.prepare(self.fork, pod, line.profile)
        found, named = list[FreshNode](), named_types(pod.constraints)
        types = [name for name in known_types(self.view) if name in named or nodes_of_type(self.view, name)]
        for fresh in (yield from self.machines_like(types, pod)):
            if new_node_takes(self.fork, fresh, pod, line.profile):
                found.append(fresh)
            yield
        found = [fresh for fresh in found if fresh.like] or found
        if not (has_pod_terms(pod.constraints) or self.fork.view.has_terms(TermKind.ANTI_AFFINITY)):
            self._taking[line.key] = tuple(found)
        return tuple(found)

    def join(self, fresh: FreshNode) -> str:
        """Add a machine, younger than every node that exists; return its name."""
        self._joined += 1
        node = attrs.evolve(fresh.node, created=_LATE + self._joined)
        return join(self.fork, attrs.evolve(fresh, node=node), 1_000_000 + self._joined)

    def place_on(self, line: PackingLine, pod: Pod, node_name: str) -> bool:
        return self._placer.place_on(pod, line.profile, node_name)

    def open_machine(self, lines: Sequence[PackingLine]) -> Generator[None, None, PackedMachine | None]:
        """
        Add the machine for the first pod of the first line, with those pods of the lines that fit.

        The pods are taken from their lines; the first refusal answers for the others of a line. What is asked for is
        any machine of `alike`, so a pod comes along only if each of them takes it. None if no machine takes the first.
        """
        first = lines[0]
        taking = yield from self.machines_for(first, first.pods[0])
        if not taking:
            return None
        name, total = first.request.resource, first.request.total * len(first.pods)
        in_order = sorted(taking, key=lambda fresh: fresh.node.allocatable.get(name, 0))
        machine = next((fresh for fresh in in_order if fresh.node.allocatable.get(name, 0) >= total), in_order[-1])
        label = machine.node.labels[INSTANCE_TYPE_LABEL]
        alike = tuple(fresh for fresh in taking if fresh.node.labels[INSTANCE_TYPE_LABEL] == label)
        groups = {fresh.node_group for fresh in alike}
        node_name = self.join(machine)
        pods: tuple[Pod, ...] = ()
        yield
        for line in lines:
            while line.pods:
                pod = line.pods[0]
                row = self.fork.node(node_name)
                if row is None or row.free(line.request.resource) < line.request.total:
                    break
                if pods and not groups <= {each.node_group for each in (yield from self.machines_for(line, pod))}:
                    break
                fits = self.place_on(line, pod, node_name)
                yield
                if not fits:
                    break
                line.pods.popleft()
                pods = (*pods, pod)
        return PackedMachine(machine, alike, pods) if pods else None
