"""How many fit is what a scheduler finds that places one pod after the other in a cluster rebuilt each time."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.explain.answers import Fit, PlannedPod
from neuron_scheduler.explain.fit import how_many_of
from neuron_scheduler.model.node import HOSTNAME_LABEL, ULTRASERVER_4, ZONE_LABEL, Node
from neuron_scheduler.model.pod import HostPort, Owner, Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.replicated import PodSet, Replicated
from neuron_scheduler.model.selecting_kinds import Workload
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement, SpreadConstraint
from neuron_scheduler.neuron.annotations import annotations_for
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.index_work import counted_index_work
from tests.support.random_objects import NAMES, bound_pod, pending_pod, some_node, some_workloads
from tests.support.thoroughness import examples

PROFILE: Final = default_profile("my-scheduler")
TRN1: Final = "trn1.32xlarge"
TYPES: Final = (TRN1, "inf2.48xlarge")
MOST: Final = 30


def answer(cluster: Cluster, template: Pod, replicas: int = 0, **rest: Any) -> Fit:
    """Return the answer for replicas of one pod."""
    return run(how_many_of(cluster, Replicated(replicas, (PodSet(template),)), PROFILE, **rest))


@attrs.define
class OneByOne:
    """
    Places pods one at a time: for each one the cluster is built from nothing, with the pods before it as its watch
    would show them.
    """

    nodes: Sequence[Node]
    bound: list[Pod]
    workloads: Sequence[Workload] = ()
    refused: str = ""
    placed: list[tuple[str, tuple[int, ...]]] = attrs.field(factory=list)

    def cluster(self) -> Cluster:
        """Return the cluster, rebuilt."""
        cluster = cluster_of(self.nodes, self.bound)
        for workload in self.workloads:
            cluster.workloads.put(workload)
        return cluster

    def count(self, template: Pod, most: int) -> int:
        """Return how many pods like the template are placed, at most `most`."""
        for number in range(most):
            cluster = self.cluster()
            name = f"other-{len(self.bound)}"
            pending = attrs.evolve(template, uid=name, name=name)
            decision = schedule_pod(cluster, pending, PROFILE)
            if isinstance(decision, FitError):
                self.refused = decision.text
                return number
            self.bound.append(self.as_bound(cluster, pending, decision))
            self.placed.append((decision.node_name, decision.placement.ids if decision.placement else ()))
        return most

    def as_bound(self, cluster: Cluster, pending: Pod, decision: Decision) -> Pod:
        """Return the pod with the annotations of its Binding; none of its cores is another pod's."""
        node_info = cluster.node(decision.node_name)
        assert node_info is not None
        bound = attrs.evolve(pending, node_name=decision.node_name)
        if decision.placement is None or node_info.machine is None:
            return bound
        others = [info.cores or NO_CORES for info in node_info.pod_infos.values()]
        assert not any(decision.placement.cores & cores for cores in others)
        allocation = annotations_for(
            pod=pending, machine=node_info.machine, placement=decision.placement, node_name=decision.node_name
        )
        return attrs.evolve(bound, allocation=allocation)


def no_overlap(cluster: Cluster, placed: Sequence[PlannedPod]) -> None:
    """Assert that no id is given twice, nor one that a pod has already; ids are counted core by core."""
    taken: set[tuple[str, int]] = set()
    for given in placed:
        node_info = cluster.node(given.node_name)
        assert node_info is not None
        machine = machine_of(node_info.node)
        for id_ in given.ids:
            assert machine is not None
            width = machine.cores_per_device if given.unit == "device" else 1
            for core in range(id_ * width, id_ * width + width):
                assert node_info.free_cores & CoreMask(1 << core)
                assert (given.node_name, core) not in taken
                taken.add((given.node_name, core))


def some_cluster(seed: int) -> tuple[list[Node], list[Pod], list[Workload], Pod]:
    """Return nodes, bound pods, workloads and a template."""
    dice = Random(seed)
    nodes = [some_node(dice, name) for name in NAMES[: dice.randint(1, 4)]]
    bound = [bound_pod(dice, f"b{i}") for i in range(dice.randint(0, 6))]
    template = pending_pod(dice, "t")
    if dice.random() < 0.5:  # else few fit twice
        anywhere = attrs.evolve(template.constraints, node_selector={}, required_terms=None, affinity=())
        template = attrs.evolve(template, constraints=anywhere)
    return nodes, bound, some_workloads(dice), template


@pytest.mark.parametrize("part", range(4))
def test_the_count_is_that_of_placing_one_by_one(part: int) -> None:
    """The same number on the same nodes with the same ids; and one more does not fit, for the same reason."""
    fitted = 0
    for seed in range(part, examples(240), 4):
        nodes, bound, workloads, template = some_cluster(seed)
        one_by_one = OneByOne(nodes, list(bound), workloads)
        cluster = one_by_one.cluster()
        wanted = Random(seed).choice([0, 1, 3, MOST])
        fit = answer(cluster, template, wanted, most=MOST)
        total = one_by_one.count(template, MOST)
        assert fit.total == total
        assert fit.fitting == (min(wanted, total) if wanted else total)
        assert [(pod.node_name, pod.ids) for pod in fit.placed] == one_by_one.placed[: wanted or None]
        assert (fit.limit.message if fit.limit else "") == one_by_one.refused
        no_overlap(cluster, fit.placed)
        assert cluster.pod_count == len(bound)
        fitted += total > 1
    assert fitted


def test_without_a_number_it_counts_up_to_the_bound() -> None:
    """There may be more than the bound, so there is no limit to name."""
    cluster = cluster_of([node("a", TRN1)])
    assert (answer(cluster, pod("t", devices=1), most=5).total, answer(cluster, pod("t"), most=5).limit) == (5, None)
    fit = answer(cluster, pod("t", devices=1))
    assert (fit.asked, fit.fitting, fit.total, len(fit.placed)) == (0, 16, 16, 16)


WEB: Final = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
APART: Final = (PodAffinityTerm(HOSTNAME_LABEL, WEB, frozenset({"default"})),)
EVEN: Final = (SpreadConstraint(ZONE_LABEL, 1, hard=True, selector=WEB),)


def group(replicas: int) -> Replicated:
    """Return groups of a leader with 8 devices and two workers with 16."""
    leader, worker = PodSet(pod("l", devices=8), 1, "leader"), PodSet(pod("w", devices=16), 2, "worker")
    return Replicated(replicas, (leader, worker), "LeaderWorkerSet train")


def test_a_group_counts_as_a_whole() -> None:
    """Four nodes take one group and two pods of the second one, which does not count."""
    cluster = cluster_of([node(f"n{i}", TRN1) for i in range(4)])
    fit = run(how_many_of(cluster, group(3), PROFILE))
    assert (fit.asked, fit.fitting, fit.pods_per_replica, len(fit.placed)) == (3, 1, 3, 5)
    assert [(pod.replica, pod.part) for pod in fit.placed] == [
        *[(1, "leader"), (1, "worker"), (1, "worker")],
        *[(2, "leader"), (2, "worker")],
    ]
    assert fit.limit is not None
    assert (fit.limit.replica, fit.limit.part) == (2, "worker")
    assert fit.asks == "1 x 8 Neuron devices and 2 x 16 Neuron devices"


def test_each_job_on_ultraservers_has_one_of_its_own() -> None:
    """A second job has another name, and its affinity does not tie it to the first one's UltraServer."""
    nodes = [node(f"n{n}", "trn2u.48xlarge", labels={ULTRASERVER_4: f"us{n // 4}"}) for n in range(8)]
    job = LabelSelector((Requirement("job-name", Operator.IN, ("train",)),))
    terms = (PodAffinityTerm(ULTRASERVER_4, job, frozenset({"default"})),)
    recipe = PodGroup(GroupKey(Dialect.AFFINITY, "default", "job-name=train"), topology=ULTRASERVER_4)
    worker = pod("train", devices=16, labels={"job-name": "train"}, affinity=terms, group=recipe)
    fit = run(how_many_of(cluster_of(nodes), Replicated(3, (PodSet(worker, 4),)), PROFILE))
    assert fit.fitting == 2
    assert {(placed.replica, int(placed.node_name[1]) // 4) for placed in fit.placed} in (
        {(1, 0), (2, 1)},
        {(1, 1), (2, 0)},
    )


def test_a_group_whose_name_another_job_has_already() -> None:
    """They would be one group; not so if the job in question is the one that runs."""
    train = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), least=2)
    cluster = cluster_of([node("a", TRN1)], [])
    cluster.groups.put(pod("old", group=train, owner=Owner("batch/v1", "Job", "old")))
    sets = (PodSet(pod("new", devices=8, group=train), 2),)
    new, old = (run(how_many_of(cluster, Replicated(1, sets, f"Job {name}"), PROFILE)) for name in ("new", "old"))
    (note,) = new.notes
    assert note == (
        "Group default/train has members already, of Job old: with its name they and these pods are one group. Give"
        " each run a name of its own."
    )
    assert (old.notes, old.fitting) == ((), 1)


def test_what_would_not_fit_if_all_other_pods_were_gone() -> None:
    """Too many devices or cpu of any node, or too many pods of a group: never. Pods of every node stay there."""
    agent = pod("agent", on="a", cpu=1000, owner=Owner("apps/v1", "DaemonSet", "agent"))
    others = [pod("b", on="a", devices=16, ids=range(16)), agent]
    cluster = cluster_of([node("a", TRN1, cpu=8000)], others)
    cluster.nominate("a", Nomination(pod("n", cpu=1000)))
    own = LabelSelector((Requirement("app", Operator.IN, ("t",)),))
    like = PodAffinityTerm(HOSTNAME_LABEL, own, frozenset({"default"}))
    cases = [
        (pod("t", devices=16), False),
        (pod("t", devices=7), True),
        (pod("t", cpu=7000), False),
        (pod("t", cpu=7001), True),
        (pod("t", devices=7, affinity=(like,)), False),
        (pod("t", devices=7, affinity=(like,), labels={"app": "t"}), True),
    ]
    for template, never in cases:
        assert (answer(cluster, template).total, answer(cluster, template).never) == (0, never)
    together = (PodSet(pod("t", devices=16, group=PodGroup(GroupKey(Dialect.KUEUE, "default", "g"), least=2)), 2),)
    assert run(how_many_of(cluster, Replicated(1, together), PROFILE)).never
    assert cluster.pod_count == 2


def test_that_pods_of_lower_priority_may_be_evicted() -> None:
    """Where there are such pods, and not all fit without that."""
    sentence = "`fit` evicts nobody; the scheduler may evict pods of lower priority for these."
    cluster = cluster_of([node("a", TRN1)], [pod("b", on="a", devices=16, ids=range(16), priority=-5)])
    assert answer(cluster, pod("t", devices=1)).notes == (sentence,)
    for other in (pod("t", devices=1, priority=-5), pod("t", devices=1, never_preempts=True), pod("t", cpu=1)):
        assert answer(cluster, other, replicas=1, most=1).notes == ()


def test_kept_space_is_not_free() -> None:
    """Space nominated to a pod of equal priority; a pod of a higher one may have it."""
    cluster = cluster_of([node("a", TRN1)])
    cluster.nominate("a", Nomination(pod("n", devices=8, priority=5), cores=CoreMask(0xFFFF)))
    assert answer(cluster, pod("t", devices=4, priority=5)).total == 2
    assert answer(cluster, pod("t", devices=4, priority=6)).total == 4


@pytest.mark.parametrize(
    "rest", [{}, {"spread": EVEN}, {"anti_affinity": APART}, {"host_ports": (HostPort("TCP", 80),)}]
)
def test_a_step_builds_one_index(rest: dict[str, Any]) -> None:
    """In a running process other tasks run between two steps; building an index takes the longest."""
    nodes = [
        node(f"n{i}", TYPES[i % 2], labels={ZONE_LABEL: "xyz"[i % 3], HOSTNAME_LABEL: f"n{i}"}) for i in range(300)
    ]
    cluster = cluster_of(nodes, [pod("p", on="n0", devices=1, ids=(0,), labels={"app": "web"})])
    template = pod("t", devices=16, cpu=1, memory=1, labels={"app": "web"}, **rest)
    steps = how_many_of(cluster, Replicated(152, (PodSet(template),)), PROFILE)
    built = []
    with counted_index_work() as work:
        for _ in steps:
            built.append(work.built)
            work.built = 0
    assert max(built) == 1
    assert sum(built) < 60


@pytest.mark.parametrize("part", range(2))
def test_groups_agree_with_placing_one_by_one(part: int) -> None:
    """Pods of two templates in turn: the complete groups, and the pods of the one that is not complete."""
    complete = 0
    for seed in range(part, examples(120), 2):
        nodes, bound, workloads, first = some_cluster(seed)
        nodes.append(node("roomy", TRN1, cpu=64_000))  # else a group is seldom complete
        dice = Random(seed)
        second = pod("s", devices=dice.choice((1, 2, 4)))
        pod_sets = (PodSet(first, dice.randint(1, 2), "first"), PodSet(second, dice.randint(1, 2), "second"))
        one_by_one = OneByOne(nodes, list(bound), workloads)
        workload = Replicated(MOST, pod_sets)
        fit = run(how_many_of(one_by_one.cluster(), workload, PROFILE))
        order = [pods.template for _ in range(MOST) for pods in pod_sets for _ in range(pods.count)]
        number = next((at for at, template in enumerate(order) if not one_by_one.count(template, 1)), len(order))
        assert (fit.fitting, len(fit.placed)) == (number // workload.pods_per_replica, number)
        assert [(pod.node_name, pod.ids) for pod in fit.placed] == one_by_one.placed
        assert (fit.limit.message if fit.limit else "") == one_by_one.refused
        complete += fit.fitting
    assert complete


@pytest.mark.parametrize(("pairs", "fitting"), [(False, 0), (True, 8)])
def test_pods_are_placed_as_their_profile_decides(pairs: bool, fitting: int) -> None:
    """Without pairs a node of Trn2 takes no pod of two devices."""
    profile, workload = default_profile("p", allow_aligned_pairs=pairs), Replicated(0, (PodSet(pod(devices=2)),))
    cluster = cluster_of([node("a", "trn2.48xlarge")])
    assert run(how_many_of(cluster, workload, profile)).fitting == fitting
