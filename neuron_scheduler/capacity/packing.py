"""
Pods packed onto machines that do not exist yet, by the real rules: each is decided and assumed on a fork.

Machines are filled one after the other. The next one is opened for the first pod that is left: of those that could be
added and take this pod it is the one that serves most together, and the smallest of several. Requests are packed large
ones first, which needs the fewest machines where the sizes divide each other, as blocks of a torus do. Does not try
other orders: for runs of any length on a line it is first-fit-decreasing, with its known bound.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final

import attrs

from neuron_scheduler.capacity.lines import Line, counts_pods
from neuron_scheduler.capacity.offers import Offer, Offers
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import join
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.explain.placing import assume
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, decide_on, select_node
from neuron_scheduler.scheduling.queue.signature import Signature

_MOST_TRIED: Final = 16
"""Machines that are compared for one pod."""
_LATE: Final = float(1 << 50)
_FIRST: Final = 1_000_000
"""Numbers in the names of machines that join a fork; smaller ones are left to other questions about it."""

Batch = tuple[Line, Iterable[Pod]]
"""Pods of a line that may be placed, in order."""
Loaded = tuple[tuple[Line, Pod], ...]
"""The pods that a machine got, in that order."""
Joins = Callable[[Offer, Loaded, Line, Pod], Generator[None, None, bool]]
"""Whether a pod may share a machine with those that are on it already, for other reasons than room."""


@attrs.frozen(eq=False)
class Packed:
    """
    A machine with its pods.

    Attributes:
        node_name: on the fork.
    """

    offer: Offer
    node_name: str
    load: Loaded

    def fills_again(self, line: Line) -> bool:
        """Return whether the line alone has filled it, and can fill another one."""
        alone = all(of is line for of, _ in self.load) and not counts_pods(line.pods[0])
        return alone and len(line.pods) >= len(self.load)


@attrs.define(eq=False)
class Packing:
    """
    A fork of the cluster, to which machines are added.

    Attributes:
        fork: with all that was placed so far.
        offers: what could be added.
    """

    fork: Cluster
    offers: Offers
    _joined: int = 0
    _offer_of: dict[str, Offer] = attrs.field(factory=dict)  # by the name of the machine
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup)
    _taking: dict[Signature, tuple[Offer, ...]] = attrs.field(factory=dict)
    _chosen: dict[Signature, Packed] = attrs.field(factory=dict)

    def place(self, line: Line, pod: Pod) -> Generator[None, None, str]:
        """Place a pod where the scheduler would, and return the node's name; empty if no node takes it."""
        yield from self._warmup.of(self.fork, pod, line.profile)
        result = select_node(self.fork, pod, line.profile)
        if isinstance(result, Decision):
            assume(self.fork, pod, result)
            yield
            return result.node_name
        yield
        return ""

    def taking(self, line: Line, pod: Pod) -> Generator[None, None, tuple[Offer, ...]]:
        """Return the offers that take a pod; for pods that ask nothing about others it is found out once for a line."""
        known = self._taking.get(line.key)
        if known is not None:
            return known
        yield from self._warmup.of(self.fork, pod, line.profile)
        taking = yield from self.offers.taking(self.fork, pod, line.profile)
        if not (counts_pods(pod) or self.fork.view.has_terms(TermKind.ANTI_AFFINITY)):
            self._taking[line.key] = taking
        return taking

    def add(self, offer: Offer, batches: Iterable[Batch], joins: Joins | None = None) -> Generator[None, None, Packed]:
        """Add a machine, and place on it those of the pods that fit."""
        self._joined += 1
        joining = attrs.evolve(offer.fresh.node, created=_LATE + self._joined)  # younger than every node that exists
        node_name = join(self.fork, attrs.evolve(offer.fresh, node=joining), _FIRST + self._joined)
        yield
        self._offer_of[node_name] = offer
        return Packed(offer, node_name, (yield from _filled(self.fork, node_name, offer, batches, joins)))

    def filled_up(self, node_name: str, batches: Iterable[Batch]) -> Generator[None, None, Packed]:
        """Place on a machine that was added before those of the pods that fit now, and return these."""
        offer = self._offer_of[node_name]
        return Packed(offer, node_name, (yield from _filled(self.fork, node_name, offer, batches, None)))

    def tried(
        self, offer: Offer, batches: Iterable[Batch], joins: Joins | None = None
    ) -> Generator[None, None, Packed]:
        """Return what `add` would return; the fork stays as it is."""
        trial = Packing(self.fork.fork(), self.offers, joined=self._joined, taking=self._taking)
        yield
        return (yield from trial.add(offer, batches, joins))

    def before(self, packed: Packed) -> Generator[None, None, "Packing"]:
        """Return the same as it was before the pods of a machine had places."""
        fork = self.fork.fork()
        yield
        for _, pod in packed.load:
            fork.forget(pod.uid)
        yield
        return Packing(fork, self.offers, joined=self._joined, taking=dict(self._taking))

    def opened(
        self, lines: Sequence[Line], joins: Joins | None = None, *, most: int
    ) -> Generator[None, None, tuple[list[Packed], list[Line]]]:
        """
        Add machines until all pods of the lines have a place, and take these pods from their lines.

        Returns the machines, and the lines of which no machine takes a pod. At most `most` machines are added; then the
        other pods stay in their lines.
        """
        machines: list[Packed] = []
        unserved: list[Line] = []
        waiting = [line for line in lines if line.pods]
        while waiting and len(machines) < most:
            taking = yield from self.taking(waiting[0], waiting[0].pods[0])
            offer = yield from self._best(taking, waiting, joins)
            packed = None
            if offer is not None:
                packed = yield from self.add(offer, _batches(waiting), joins)
            if packed is None or not packed.load:
                unserved.append(waiting.pop(0))
                continue
            machines.append(packed)
            take(packed.load)
            waiting = [line for line in waiting if line.pods]
        return machines, unserved

    def _best(
        self, taking: Sequence[Offer], lines: Sequence[Line], joins: Joins | None
    ) -> Generator[None, None, Offer | None]:
        """Return the offer that serves most pods together, the smallest of several."""
        if len(lines) == 1 or joins is None:  # machines of one size take as many of them in every zone
            taking = list({frozenset(offer.silicon.items()): offer for offer in taking[::-1]}.values())
        if len(taking) < 2:
            return taking[0] if taking else None
        chosen = self._chosen.get(lines[0].key)
        if chosen is not None and chosen.fills_again(lines[0]):
            return chosen.offer
        best: Packed | None = None
        most = (0, 0)
        for offer in taking[:_MOST_TRIED]:
            packed = yield from self.tried(offer, _batches(lines), joins)
            score = (_served(packed), -offer.devices)
            if packed.load and (best is None or score > most):
                best, most = packed, score
        if best is None:
            return None
        self._chosen[lines[0].key] = best
        return best.offer


def take(load: Loaded) -> None:
    """Take pods that have a place from the front of their lines."""
    for line, pod in load:
        if line.pods and line.pods[0] is pod:
            line.pods.popleft()


def _batches(lines: Iterable[Line]) -> Iterable[Batch]:
    return ((line, line.pods) for line in lines)


def _filled(
    fork: Cluster, node_name: str, offer: Offer, batches: Iterable[Batch], joins: Joins | None
) -> Generator[None, None, Loaded]:
    """Place on one node those of the pods that fit; the first refusal answers for the others of a line."""
    load: Loaded = ()
    for line, pods in batches:
        for pod in pods:
            node_info = fork.node(node_name)
            if node_info is None or node_info.free(line.request.resource) < line.request.total:
                break
            decision = decide_on(fork, pod, line.profile, node_name)
            yield
            if not isinstance(decision, Decision):
                break
            if joins is not None and not (yield from joins(offer, load, line, pod)):
                break
            assume(fork, pod, decision)
            load = (*load, (line, pod))
    return load


def _served(packed: Packed) -> int:
    """Return how much of the machine's Neuron its pods use, in devices, rounded up for each pod."""
    machine_cores = packed.offer.cores_per_device
    return sum(
        line.request.total if line.request.unit is Unit.DEVICE else -(-line.request.total // machine_cores)
        for line, _ in packed.load
    )
