"""
How many more replicas of a workload fit, where they go, what limits the rest, and what new nodes would give.

Every figure is found by placing pods on a fork, one after the other, by the decision of the running scheduler. The fork
is made in the first step, so later changes of the cluster do not count. Does not evict: pods stay where they are, and
space that is kept for pending pods is not free. Pods that wait already are not placed first.

A claim that replicas would create, and whose class waits for its first consumer, is provisioned where the pod goes, so
the decision reads it. Any other is provisioned at once, at a place that nobody can know now: it is left out, and a note
says so.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fresh_node import FreshNode, fresh_nodes, join
from neuron_scheduler.explain.answers import Fit, Fits, Limit, PlacedPod, Purchase, TypeCount
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selecting_kinds import Workload
from neuron_scheduler.model.selectors import NO_LABELS
from neuron_scheduler.model.volumes import PersistentVolumeClaim
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked, named_types
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, NoNode, fit_error
from neuron_scheduler.scheduling.cycle.what_if import Placer, fresh_that_take, prepared_for_fresh


@attrs.frozen
class PodSet:
    """
    Equal pods of one replica.

    Attributes:
        template: a pod without a node; its name begins the names of its copies.
        count: pods of one replica.
        name: such as `worker`; empty if the replica has only this one.
        claims: claims of each pod alone; the name is that of the claim in the template's `volume_claims`.
    """

    template: Pod
    count: int = 1
    name: str = ""
    claims: tuple[PersistentVolumeClaim, ...] = ()


@attrs.frozen
class Replicated:
    """
    Replicas of pods.

    Attributes:
        replicas: how many are wanted; 0 to ask how many there can be.
        pod_sets: the pods of one replica, in the order in which they are placed.
        name: such as `Job train`.
        controller: selects the pods for the default spread constraints; None if nothing is known.
        notes: what could not be read of it, for the answer.
    """

    replicas: int
    pod_sets: tuple[PodSet, ...]
    name: str = ""
    controller: Workload | None = None
    notes: tuple[str, ...] = ()

    @property
    def pods_per_replica(self) -> int:
        """How many pods one replica has."""
        return sum(pod_set.count for pod_set in self.pod_sets)


def _with_known_claims(cluster: Cluster, workload: Replicated) -> Replicated:
    """Return the workload without the claims that cannot be considered, with a note for each class of them."""
    notes = dict.fromkeys(workload.notes)
    pod_sets: list[PodSet] = []
    for pod_set in workload.pod_sets:
        problems = {claim.name: _problem(cluster, claim) for claim in pod_set.claims}
        left_out = {name for name, problem in problems.items() if problem}
        notes |= dict.fromkeys(filter(None, problems.values()))
        pod_sets.append(_without(pod_set, left_out) if left_out else pod_set)
    return attrs.evolve(workload, pod_sets=tuple(pod_sets), notes=tuple(notes))


def _problem(cluster: Cluster, claim: PersistentVolumeClaim) -> str:
    storage_class = cluster.volumes.classes.get(claim.class_name)
    if not claim.class_name:
        return "Volumes of the default storage class are not considered: which class that is, is not known here."
    if storage_class is None:
        return f"Volumes of the storage class {claim.class_name} are not considered: the class is not known here."
    if not storage_class.waits:
        return (
            f"Volumes of the storage class {claim.class_name} are not considered: they are provisioned before a pod"
            " has a node."
        )
    return ""


def _without(pod_set: PodSet, names: set[str]) -> PodSet:
    template = _with_claims(pod_set.template, dict.fromkeys(names))
    return attrs.evolve(
        pod_set, template=template, claims=tuple(claim for claim in pod_set.claims if claim.name not in names)
    )


def _with_claims(pod: Pod, renamed: Mapping[str, str | None]) -> Pod:
    """Return the pod with other names of its claims; one whose new name is None is left out."""
    shared, own = (
        tuple(filter(None, (renamed.get(name, name) for name in names)))
        for names in (pod.constraints.volume_claims, pod.constraints.ephemeral_claims)
    )
    return attrs.evolve(pod, constraints=attrs.evolve(pod.constraints, volume_claims=shared, ephemeral_claims=own))


@attrs.frozen
class Placing:
    """
    What came of it.

    Attributes:
        pods: in order, those of the last, incomplete replica included.
        complete: replicas of which every pod was placed.
        limit: why the next pod was not placed; None if all were.
    """

    pods: tuple[PlacedPod, ...]
    complete: int
    limit: Limit | None = None


def _place(fork: Cluster, workload: Replicated, profile: Profile, *, most: int) -> Generator[None, None, Placing]:
    """
    Place up to `most` replicas on a fork; it yields where other tasks may run, and returns what came of it.

    A step is one decision, or a part of building the indexes for it.
    """
    placer, pods = Placer(fork), list[PlacedPod]()
    if workload.controller is not None:
        fork.workloads.put(workload.controller)
    for replica, pod_set in _in_order(workload, most):
        pod = _copy_of(fork, pod_set)
        result = yield from placer.place(pod, profile)
        if isinstance(result, NoNode):
            yield from placer.warmup.of_refusal(fork, pod, profile)
            limit = _limit(fit_error(fork, pod, profile, result), replica, pod_set.name)
            return Placing(tuple(pods), replica - 1, limit)
        pods.append(_placed_pod(fork, result, pod, replica, pod_set.name))
    return Placing(tuple(pods), most)


def _warm_up(fork: Cluster, workload: Replicated, profile: Profile) -> Iterator[None]:
    """Build in steps the indexes that a workload's decisions and refusals need; later forks of this fork have them."""
    warmup = IndexWarmup()
    for pod_set in workload.pod_sets:
        yield from warmup.of(fork, pod_set.template, profile)
        yield from warmup.of_refusal(fork, pod_set.template, profile)


def _in_order(workload: Replicated, most: int) -> Iterator[tuple[int, PodSet]]:
    """Yield each pod to be placed: the number of its replica, and its set."""
    for replica in range(1, most + 1):
        for pod_set in workload.pod_sets:
            yield from repeat((replica, pod_set), pod_set.count)


def _copy_of(fork: Cluster, pod_set: PodSet) -> Pod:
    """Return one more pod of a set, and add the claims that it has for itself alone."""
    template = pod_set.template
    uid = name = f"{template.name}/{fork.pod_count}"  # no object has such a name, and no pod that was placed before
    copy = attrs.evolve(template, uid=uid, name=name, node_name="", nominated_node_name="", allocation=NO_LABELS)
    if not pod_set.claims:
        return copy
    renamed = {claim.name: f"{name}/{index}" for index, claim in enumerate(pod_set.claims)}
    for claim in pod_set.claims:
        claim_name = renamed[claim.name]
        fork.put_storage(attrs.evolve(claim, uid=f"claim-{claim_name}", name=claim_name, owner=uid))
    return _with_claims(copy, renamed)


def _placed_pod(fork: Cluster, decision: Decision, pod: Pod, replica: int, part: str) -> PlacedPod:
    node_info = fork.node(decision.node_name)
    return PlacedPod(
        replica=replica,
        node_name=decision.node_name,
        instance_type="" if node_info is None else node_info.node.instance_type,
        part=part,
        ids=decision.ids,
        unit="" if pod.neuron is None else pod.neuron.unit,
    )


def _limit(refused: FitError, replica: int, part: str) -> Limit:
    return Limit(refused.text, refused.cause, replica, part, autoscalers=not refused.new_node_cannot_help)


MOST_NODES: Final = 256
"""Nodes of the largest purchase that is tried."""
MOST_OF_CATALOG: Final = 3
"""Types that are tried if no type of the cluster takes a pod."""


@attrs.frozen(kw_only=True)
class Shortfall:
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


def purchase(shortfall: Shortfall, instance_type: str, nodes: int) -> Generator[None, None, Purchase]:
    """
    Try a number of new nodes of a type, in the zone or node group where they give most.

    It yields where other tasks may run.
    """
    yield from prepared_for_fresh(shortfall.cluster.view)
    answers: list[Purchase] = []
    for shape in fresh_nodes(shortfall.cluster.view, instance_type):
        placing = yield from _placed(shortfall, shape, nodes, shortfall.most)
        answers.append(_answer(shortfall, shape, nodes, placing))
    problem = "neither the cluster nor the catalog has this instance type"
    return max(answers, key=lambda answer: answer.total, default=Purchase(instance_type, nodes, problem=problem))


def smallest_purchases(shortfall: Shortfall) -> Generator[None, None, tuple[Purchase, ...]]:
    """
    Find for each type the smallest purchase that lets all wanted replicas in; fewest devices first.

    The types are those of the cluster and those that the pods name; if none of them takes a pod, the smallest of the
    catalog's that do. It yields where other tasks may run.
    """
    named = {name for pods in shortfall.workload.pod_sets for name in named_types(pods.template.constraints)}
    fork = shortfall.cluster.fork()
    pods = [_copy_of(fork, pod_set) for pod_set in shortfall.workload.pod_sets]

    def likely(shape: FreshNode) -> bool:
        return bool(shape.like) or shape.node.instance_type in named

    yield from prepared_for_fresh(fork.view)
    candidates = yield from fresh_that_take(fork, pods, shortfall.profile, likely)
    if not candidates:
        of_catalog = yield from fresh_that_take(fork, pods, shortfall.profile, lambda shape: not shape.like)
        candidates = of_catalog[:MOST_OF_CATALOG]
    answers: list[Purchase] = []
    for shapes in candidates:
        fewest = yield from _fewest(shortfall, shapes)
        if fewest is not None:
            placing = yield from _placed(shortfall, *fewest, shortfall.most)
            answers.append(attrs.evolve(_answer(shortfall, *fewest, placing), smallest=True))
    return tuple(sorted(answers, key=lambda answer: (answer.devices, answer.nodes, answer.instance_type)))


def _fewest(shortfall: Shortfall, shapes: list[FreshNode]) -> Generator[None, None, tuple[FreshNode, int] | None]:
    """Return how many nodes of the best of the shapes let all wanted replicas in; None if not even the most do."""
    wanted, before = shortfall.workload.replicas, shortfall.before
    tried: list[tuple[int, FreshNode]] = []
    for shape in shapes:
        placing = yield from _placed(shortfall, shape, 1, wanted)
        if placing.complete >= wanted:
            return shape, 1
        tried.append((len(placing.pods) - len(before.pods), shape))
    gained, shape = max(tried, key=lambda gain: gain[0])
    if gained <= 0:
        return None
    missing = wanted * shortfall.workload.pods_per_replica - len(before.pods)
    too_few, nodes = 1, min(MOST_NODES, max(2, -(-missing // gained)))
    while not (yield from _are_enough(shortfall, shape, nodes)):
        if nodes == MOST_NODES:
            return None
        too_few, nodes = nodes, min(MOST_NODES, 2 * nodes)
    between = nodes - 1  # the first guess is right for most workloads
    while nodes - too_few > 1:
        if (yield from _are_enough(shortfall, shape, between)):
            nodes = between
        else:
            too_few = between
        between = (nodes + too_few) // 2
    return shape, nodes


def _are_enough(shortfall: Shortfall, shape: FreshNode, nodes: int) -> Generator[None, None, bool]:
    wanted = shortfall.workload.replicas
    placing = yield from _placed(shortfall, shape, nodes, wanted)
    return placing.complete >= wanted


def _placed(shortfall: Shortfall, shape: FreshNode, nodes: int, most: int) -> Generator[None, None, Placing]:
    """Place up to `most` replicas on a fork with new nodes of a shape."""
    fork = shortfall.cluster.fork()
    yield
    for number in range(1, nodes + 1):
        join(fork, shape, number)
        yield
    return (yield from _place(fork, shortfall.workload, shortfall.profile, most=most))


def _answer(shortfall: Shortfall, shape: FreshNode, nodes: int, placing: Placing) -> Purchase:
    wanted = shortfall.workload.replicas
    return Purchase(
        instance_type=shape.node.instance_type,
        nodes=nodes,
        total=placing.complete,
        gained=placing.complete - shortfall.before.complete,
        enough=0 < wanted <= placing.complete,
        like=shape.like,
        zone=shape.zone,
        devices=nodes * _devices(shape),
        limit=placing.limit,
    )


def _devices(shape: FreshNode) -> int:
    return shape.node.capacity.get(NEURON_DEVICE, 0)


MOST_PODS: Final = 1000
"""Pods that are placed if more were not asked for."""

Buy = tuple[int, str]
"""A number of nodes and their instance type."""


def how_many_of(
    cluster: Cluster,
    workload: Replicated,
    profile: Profile,
    *,
    buy: Sequence[Buy] = (),
    suggest: bool = True,
    most: int = MOST_PODS,
) -> Generator[None, None, Fit]:
    """
    Return how many replicas of a workload fit; yields where other tasks may run.

    Args:
        cluster: it is not changed.
        workload: what is placed.
        profile: by which it is decided.
        buy: purchases to try.
        suggest: whether to search the smallest purchase that lets all wanted replicas in, if not all fit.
        most: pods that are placed at most, unless more are wanted.
    """
    fork, workload = cluster.fork(), _with_known_claims(cluster, workload)
    yield
    yield from _warm_up(fork, workload, profile)
    bound = max(workload.replicas, most // workload.pods_per_replica, 1)
    placing: Placing = yield from _place(fork.fork(), workload, profile, most=bound)
    shortfall = Shortfall(cluster=fork, workload=workload, profile=profile, most=bound, before=placing)
    return _fit(shortfall, (yield from _purchases(shortfall, buy, suggest=suggest)))


def how_many_of_each(
    cluster: Cluster,
    workloads: Sequence[Replicated],
    profile_of: Callable[[Replicated], Profile],
    *,
    buy: Sequence[Buy] = (),
    suggest: bool = True,
    most: int = MOST_PODS,
) -> Generator[None, None, Fits]:
    """
    Return how many replicas of several workloads fit, which are placed one after the other in their order.

    It yields where other tasks may run. Arguments are those of `how_many_of`.
    """
    fork, answers = cluster.fork(), list[Fit]()
    yield
    for workload in workloads:
        profile = profile_of(workload)
        fit = yield from how_many_of(fork, workload, profile, buy=buy, suggest=suggest, most=most)
        answers.append(fit)
        if workload is not workloads[-1]:
            yield from _place(fork, _with_known_claims(fork, workload), profile, most=workload.replicas)
    return Fits(tuple(answers))


def _purchases(
    shortfall: Shortfall, buy: Sequence[Buy], *, suggest: bool
) -> Generator[None, None, tuple[Purchase, ...]]:
    purchases: dict[Buy, Purchase] = {}
    for nodes, instance_type in buy:
        purchases[nodes, instance_type] = yield from purchase(shortfall, instance_type, nodes)
    if suggest and shortfall.before.complete < shortfall.workload.replicas:
        smallest = yield from smallest_purchases(shortfall)
        purchases |= {(answer.nodes, answer.instance_type): answer for answer in smallest}
    return tuple(purchases.values())


def _fit(shortfall: Shortfall, purchases: tuple[Purchase, ...]) -> Fit:
    workload, placing = shortfall.workload, shortfall.before
    wanted = workload.replicas
    shown = tuple(pod for pod in placing.pods if not wanted or pod.replica <= wanted)
    return Fit(
        name=workload.name,
        asks=_asks(workload),
        asked=wanted,
        fitting=min(wanted, placing.complete) if wanted else placing.complete,
        pods_per_replica=workload.pods_per_replica,
        pods_fitting=len(shown),
        placed=shown,
        total=placing.complete,
        most=shortfall.most,
        limit=placing.limit,
        types=_by_type(shown),
        purchases=purchases,
        notes=(*workload.notes, *_notes(workload, purchases)),
    )


def _asks(workload: Replicated) -> str:
    if workload.pods_per_replica == 1:
        return asked(workload.pod_sets[0].template.neuron)
    parts = [(pod_set.count, asked(pod_set.template.neuron)) for pod_set in workload.pod_sets]
    return " and ".join(f"{count} x {part}" for count, part in parts if part)


def _by_type(placed: Sequence[PlacedPod]) -> tuple[TypeCount, ...]:
    pods = Counter(pod.instance_type for pod in placed)
    nodes = Counter(instance_type for instance_type, _ in {(pod.instance_type, pod.node_name) for pod in placed})
    return tuple(TypeCount(instance_type, count, nodes[instance_type]) for instance_type, count in pods.most_common())


def _notes(workload: Replicated, purchases: Sequence[Purchase]) -> Iterator[str]:
    templates = [pod_set.template for pod_set in workload.pod_sets]
    gates = sorted({gate for template in templates for gate in template.gates})
    if gates:
        yield f"The pods wait for their scheduling gates ({', '.join(gates)}) first; they are not considered."
    if any(template.priority > 0 for template in templates):
        yield "Evictions of pods of lower priority are not considered."
    unknown = dict.fromkeys(bought.instance_type for bought in purchases if not bought.like and not bought.problem)
    if unknown:
        yield (
            f"The cluster has no {', '.join(unknown)}: its cpu, memory, taints and labels are not known, so only its"
            " Neuron devices limit what fits on it."
        )
