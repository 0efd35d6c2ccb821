"""
What new nodes would give: the same replicas, placed on a fork that has these nodes too.

Does not trust arithmetic: every figure was found by placing the replicas. New nodes are the youngest of the fork, so
they are used where no existing node is preferred.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, join, known_types
from neuron_scheduler.explain.answers.fit import Purchase
from neuron_scheduler.explain.placing import Placing, copy_of, place
from neuron_scheduler.explain.replicated import Replicated
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.scheduling.cycle.neuron_shortage import named_types
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.what_if import takes

MOST_NODES: Final = 256
"""Nodes of the largest purchase that is tried."""
MOST_OF_CATALOG: Final = 3
"""Types that are tried if no type of the cluster takes a pod."""


@attrs.frozen(kw_only=True)
class Question:
    """
    What is asked of each purchase.

    Attributes:
        cluster: a fork that nobody changes.
        most: replicas that are placed at most.
        before: what came of placing them without a purchase.
    """

    cluster: Cluster
    workload: Replicated
    profile: Profile
    most: int
    before: Placing


def purchase(question: Question, instance_type: str, nodes: int) -> Generator[None, None, Purchase]:
    """
    Try a number of new nodes of a type, in the zone or node group where they give most.

    It yields where other tasks may run.
    """
    yield from _prepared(question.cluster)
    answers: list[Purchase] = []
    for shape in fresh_nodes(question.cluster.view, instance_type):
        placing = yield from _placed(question, shape, nodes, question.most)
        answers.append(_answer(question, shape, nodes, placing))
    problem = "neither the cluster nor the catalog has this instance type"
    return max(answers, key=lambda answer: answer.total, default=Purchase(instance_type, nodes, problem=problem))


def smallest_purchases(question: Question) -> Generator[None, None, tuple[Purchase, ...]]:
    """
    Find for each type the smallest purchase that lets all wanted replicas in; fewest devices first.

    The types are those of the cluster and those that the pods name; if none of them takes a pod, the smallest of the
    catalog's that do. It yields where other tasks may run.
    """
    yield from _prepared(question.cluster)
    named = {name for pods in question.workload.pod_sets for name in named_types(pods.template.constraints)}
    candidates = yield from _candidates(question, lambda shape: bool(shape.like) or shape.node.instance_type in named)
    if not candidates:
        of_catalog = yield from _candidates(question, lambda shape: not shape.like)
        candidates = sorted(of_catalog, key=lambda shapes: _devices(shapes[0]))[:MOST_OF_CATALOG]
    answers: list[Purchase] = []
    for shapes in candidates:
        fewest = yield from _fewest(question, shapes)
        if fewest is not None:
            placing = yield from _placed(question, *fewest, question.most)
            answers.append(attrs.evolve(_answer(question, *fewest, placing), smallest=True))
    return tuple(sorted(answers, key=lambda answer: (answer.devices, answer.nodes, answer.instance_type)))


def _prepared(cluster: Cluster) -> Iterator[None]:
    """Build in steps the indexes that find nodes by type and by zone."""
    return cluster.view.prepared(lambda view: (view.labelled(INSTANCE_TYPE_LABEL), view.labelled(ZONE_LABEL)))


def _candidates(
    question: Question, considered: Callable[[FreshNode], bool]
) -> Generator[None, None, list[list[FreshNode]]]:
    """Return by type the shapes of a new node, out of those to be considered, on which a pod of the workload fits."""
    fork = question.cluster.fork()
    pods = [copy_of(fork, pod_set) for pod_set in question.workload.pod_sets]
    candidates: list[list[FreshNode]] = []
    for instance_type in known_types(fork.view):
        shapes = fresh_nodes(fork.view, instance_type)
        yield
        fitting: list[FreshNode] = []
        for shape in filter(considered, shapes):
            if any(takes(fork, shape, pod, question.profile) for pod in pods):
                fitting.append(shape)
            yield
        if fitting:
            candidates.append(fitting)
    return candidates


def _fewest(question: Question, shapes: list[FreshNode]) -> Generator[None, None, tuple[FreshNode, int] | None]:
    """Return how many nodes of the best of the shapes let all wanted replicas in; None if not even the most do."""
    wanted, before = question.workload.replicas, question.before
    tried: list[tuple[int, FreshNode]] = []
    for shape in shapes:
        placing = yield from _placed(question, shape, 1, wanted)
        if placing.complete >= wanted:
            return shape, 1
        tried.append((len(placing.pods) - len(before.pods), shape))
    gained, shape = max(tried, key=lambda gain: gain[0])
    if gained <= 0:
        return None
    missing = wanted * question.workload.pods_per_replica - len(before.pods)
    too_few, nodes = 1, min(MOST_NODES, max(2, -(-missing // gained)))
    while not (yield from _are_enough(question, shape, nodes)):
        if nodes == MOST_NODES:
            return None
        too_few, nodes = nodes, min(MOST_NODES, 2 * nodes)
    between = nodes - 1  # the first guess is right for most workloads
    while nodes - too_few > 1:
        if (yield from _are_enough(question, shape, between)):
            nodes = between
        else:
            too_few = between
        between = (nodes + too_few) // 2
    return shape, nodes


def _are_enough(question: Question, shape: FreshNode, nodes: int) -> Generator[None, None, bool]:
    wanted = question.workload.replicas
    placing = yield from _placed(question, shape, nodes, wanted)
    return placing.complete >= wanted


def _placed(question: Question, shape: FreshNode, nodes: int, most: int) -> Generator[None, None, Placing]:
    """Place up to `most` replicas on a fork with new nodes of a shape."""
    fork = question.cluster.fork()
    yield
    for number in range(1, nodes + 1):
        join(fork, shape, number)
        yield
    return (yield from place(fork, question.workload, question.profile, most=most))


def _answer(question: Question, shape: FreshNode, nodes: int, placing: Placing) -> Purchase:
    wanted = question.workload.replicas
    return Purchase(
        instance_type=shape.node.instance_type,
        nodes=nodes,
        total=placing.complete,
        gained=placing.complete - question.before.complete,
        enough=0 < wanted <= placing.complete,
        like=shape.like,
        zone=shape.zone,
        devices=nodes * _devices(shape),
        limit=placing.limit,
    )


def _devices(shape: FreshNode) -> int:
    return shape.node.capacity.get(NEURON_DEVICE, 0)
