"""
After any changes, in any order, the cluster agrees with a plain reading of nodes and pods.

The model is two dictionaries: the nodes, and the pods as they stand on the API server (or as they were assumed). All
else is computed from them again after each step.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index import sums
from neuron_scheduler.cluster.rows.node_info import NodeInfo, on_node, with_pod, without_pod
from neuron_scheduler.cluster.rows.pod_info import pod_info_of
from neuron_scheduler.cluster.tables import nodes, pods as pod_table
from neuron_scheduler.model.node import ACCELERATED_HARDWARE, NEURON_HEALTH, ZONE_LABEL, Node
from neuron_scheduler.model.pod import HostPort, Pod
from neuron_scheduler.model.selectors import Effect, LabelSelector, PodAffinityTerm, Taint
from neuron_scheduler.neuron.annotations import allocation_of, annotations_for
from neuron_scheduler.neuron.catalog import machine_of
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.neuron.topology import place
from tests.support.builders import node, pod
from tests.support.cluster_invariants import DEFINITIONS, check_equal_to_rebuilt, check_indexes
from tests.support.thoroughness import examples

NAMES = ("a", "b", "c", "d")
TYPES = (("trn2.48xlarge", 4), ("trn2.48xlarge", 8), ("inf2.24xlarge", 2), ("inf2.xlarge", 2), ("", 0))
TAINTS = ((), (Taint("t", Effect.NO_SCHEDULE),), (Taint("t", Effect.PREFER_NO_SCHEDULE), Taint("u", Effect.NO_EXECUTE)))
PORTS = ((), (HostPort("TCP", 80),), (HostPort("TCP", 80, "10.0.0.1"), HostPort("UDP", 80)))
Labels = dict[str, str]
LABELS_OF_NODES: tuple[Labels, ...] = (
    {},
    {ZONE_LABEL: "x"},
    {ZONE_LABEL: "y"},
    {ZONE_LABEL: "x", "rack": "1"},
    {"rack": "1"},
)
LABELS_OF_PODS: tuple[Labels, ...] = (
    {},
    {"app": "web"},
    {"app": "db"},
    {"app": "web", "rank": "1"},
    {"rank": "1"},
)
APART = PodAffinityTerm("zone", LabelSelector(), frozenset({"default"}))

names = st.sampled_from(NAMES)
pod_names = st.sampled_from("pqrstuvw")
picks = st.integers(0, 1 << 16)


@st.composite
def some_nodes(draw: st.DrawFn, name: str) -> Node:
    """Draw a node of a name: any type, any age, one of two identities, sometimes unreadable."""
    uid = f"{name}-{draw(st.integers(0, 1))}"
    if draw(st.integers(0, 9)) == 0:
        return Node(uid=uid, name=name, refusal="cannot be read")
    instance_type, cores_per_device = draw(st.sampled_from(TYPES))
    return node(
        name,
        instance_type,
        uid=uid,
        created=draw(st.integers(0, 2)),
        labels=draw(st.sampled_from(LABELS_OF_NODES)),
        cpu=draw(st.sampled_from([4_000, 16_000])),
        cores_per_device=cores_per_device,
        taints=draw(st.sampled_from(TAINTS)),
        unschedulable=draw(st.booleans()),
        neuron_fault=draw(st.sampled_from(("", NEURON_HEALTH, ACCELERATED_HARDWARE))),
    )


@st.composite
def some_pods(draw: st.DrawFn, name: str, on: str) -> Pod:
    """Draw a bound pod: with ids or without, legal or not."""
    keywords: dict[str, Any] = draw(
        st.sampled_from(
            [{}, {"devices": 1}, {"devices": 2}, {"devices": (1, 2)}, {"cores": 3}, {"devices": 1, "cores": 1}]
        )
    )
    count = sum(sum(c) if isinstance(c, tuple) else c for c in keywords.values())
    start = draw(st.integers(0, 13))
    ids = draw(st.sampled_from([None, range(start, start + count), range(start, start + count + 1), (start,) * count]))
    return some_pod(
        name,
        on=on,
        ids=ids or None,
        labels=draw(st.sampled_from(LABELS_OF_PODS)),
        cpu=draw(st.sampled_from([0, 500, 5_000])),
        host_ports=draw(st.sampled_from(PORTS)),
        anti_affinity=draw(st.sampled_from([(), (APART,)])),
        terminating=draw(st.booleans()),
        **keywords,
    )


def some_pod(name: str, **keywords: Any) -> Pod:
    """Return a pod of a name, which is always of the same namespace."""
    return pod(name, namespace="other" if name in "uvw" else "default", **keywords)


@pytest.fixture(autouse=True, scope="module")
def short_memory() -> Iterator[None]:
    """Make the limits of the tables so low that counts are dropped and built again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pod_table, "_MOST_LOGGED", 8)
        patch.setattr(sums, "_WORTH_READING", 2)
        patch.setattr(sums, "_MOST", 16)
        patch.setattr(nodes, "_MOST_RELABELINGS", 8)
        patch.setattr(nodes, "_MOST_HOLES", 0)
        yield


class ClusterMachine(RuleBasedStateMachine):
    """Everything that can happen to a cluster, and what must hold afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = Cluster()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}  # as bound or assumed, with the first allocation that could be read
        self.unreadable: set[str] = set()
        self.assumed: set[str] = set()
        self.forks: list[tuple[Cluster, dict[str, Node], dict[str, Pod], set[str]]] = []
        self.steps = 0

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Start with a few nodes, so that pods can be placed."""
        for name in NAMES[:3]:
            self.put_node(data, name)

    # What happens

    @rule(data=st.data(), name=names)
    def put_node(self, data: st.DataObject, name: str) -> None:
        """A node is added or changed, or was deleted and created again."""
        self.nodes[name] = data.draw(some_nodes(name))
        self.cluster.put_node(self.nodes[name])

    @rule(name=names)
    def remove_node(self, name: str) -> None:
        """A node is removed; its pods stay."""
        self.nodes.pop(name, None)
        self.cluster.remove_node(name)

    @rule(data=st.data(), name=pod_names, on=names)
    def see_a_bound_pod(self, data: st.DataObject, name: str, on: str) -> None:
        """The watch shows a pod on a node: new, changed, confirmed, or on another node than before."""
        seen = data.draw(some_pods(name, on))
        known = self.pods.get(seen.uid)
        if known is not None and known.node_name == on and on not in self.nodes:
            return  # how a machine that is gone would read another allocation is nobody's promise
        if known is not None and known.uid not in self.unreadable and known.neuron != seen.neuron:
            return  # a pod's request for Neuron cannot be changed
        self._see(seen)

    @precondition(lambda self: self.assumed)
    @rule(pick=picks)
    def confirm(self, pick: int) -> None:
        """The watch shows an assumed pod as it was sent."""
        self._see(self.pods[chosen(self.assumed, pick)])

    @rule(name=pod_names, on=names)
    def see_an_unreadable_pod(self, name: str, on: str) -> None:
        """A pod's object cannot be decoded; this matters only if it was never decoded."""
        broken = some_pod(name, on=on)
        self.cluster.put_unreadable_pod(broken)
        if broken.uid not in self.pods:
            self.pods[broken.uid] = broken
            self.unreadable.add(broken.uid)

    @precondition(lambda self: self.pods.keys() - self.unreadable)
    @rule(pick=picks, labels=st.sampled_from(LABELS_OF_PODS), terminating=st.booleans())
    def change_a_pod(self, pick: int, labels: Labels, *, terminating: bool) -> None:
        """A bound pod gets other labels, or is being deleted; nothing else changes."""
        known = self.pods[chosen(self.pods.keys() - self.unreadable, pick)]
        self._see(attrs.evolve(known, labels=labels, terminating=terminating))

    @precondition(lambda self: self.nodes)
    @rule(pick=picks, labels=st.sampled_from(LABELS_OF_NODES))
    def relabel_node(self, pick: int, labels: Labels) -> None:
        """A node moves to another domain; nothing else changes."""
        known = self.nodes[chosen(self.nodes, pick)]
        kept = {key: value for key, value in known.labels.items() if key not in (ZONE_LABEL, "rack")}
        self.nodes[known.name] = attrs.evolve(known, labels={**kept, **labels})
        self.cluster.put_node(self.nodes[known.name])

    @rule(name=pod_names)
    def remove_pod(self, name: str) -> None:
        """A pod is removed."""
        uid = pod(name).uid
        known = self.pods.pop(uid, None)
        self.unreadable.discard(uid)
        self.assumed.discard(uid)
        assert self.cluster.remove_pod(uid) == (known.node_name if known else None)

    @rule(name=pod_names, pick=picks, asked=st.sampled_from([{}, {"devices": 1}, {"devices": (1, 2)}, {"cores": 3}]))
    def assume(self, name: str, pick: int, asked: dict[str, Any]) -> None:
        """A pod is placed as the scheduler places it; no pod holds any of its cores."""
        pending = some_pod(name, cpu=100, labels=LABELS_OF_PODS[pick % 5], **asked)
        if pending.uid in self.pods or not self.nodes:
            return
        node_info = self._row(chosen(self.nodes, pick))
        placed, cores = attrs.evolve(pending, node_name=node_info.node.name), NO_CORES
        if pending.neuron is not None:
            machine = node_info.machine
            placement = None if machine is None else place(machine, node_info.free_cores, pending.neuron)
            if placement is None or machine is None:
                return
            cores = placement.cores
            assert not cores & self._held(node_info.node.name)
            allocation = annotations_for(
                pod=pending,
                machine=machine,
                placement=placement,
                node_name=node_info.node.name,
            )
            placed = attrs.evolve(placed, allocation=allocation)
        self.cluster.assume(placed, cores)
        self.pods[placed.uid] = placed
        self.assumed.add(placed.uid)

    @rule(pick=picks, core=st.integers(0, 127))
    def assume_what_is_held(self, pick: int, core: int) -> None:
        """A core that a pod holds, or that does not exist, cannot be assumed."""
        if not self.nodes:
            return
        node_info = self._row(chosen(self.nodes, pick))
        if not node_info.free_cores & CoreMask(1 << core):
            try:
                self.cluster.assume(pod("never", cores=1, on=node_info.node.name), CoreMask(1 << core))
            except ValueError:
                return
            raise AssertionError("a held core was given out")

    @rule(name=pod_names)
    def forget(self, name: str) -> None:
        """A Binding is refused; `forget` does nothing for a pod that is not assumed."""
        uid = pod(name).uid
        self.cluster.forget(uid)
        if uid in self.assumed:
            self.assumed.remove(uid)
            del self.pods[uid]

    @precondition(lambda self: len(self.forks) < 2)
    @rule()
    def fork(self) -> None:
        """A copy is taken, and stays as it is while the cluster changes."""
        self.forks.append((self.cluster.fork(), dict(self.nodes), dict(self.pods), set(self.unreadable)))

    @precondition(lambda self: self.forks)
    @rule(data=st.data())
    def go_on_with_a_fork(self, data: st.DataObject) -> None:
        """A copy changes, and the cluster stays as it is; the copy is then dropped."""
        fork = self.forks.pop()[0]
        fork.put_node(data.draw(some_nodes("d")))
        for uid in list(self.pods)[:3]:
            fork.remove_pod(uid)
        fork.put_pod(data.draw(some_pods("z", "a")))
        fork.remove_node("b")
        check_indexes(fork, range(DEFINITIONS))

    @rule(data=st.data(), asked=st.sampled_from([{}, {"devices": 1, "ids": (0,)}]))
    def add_a_row(self, data: st.DataObject, asked: dict[str, Any]) -> None:
        """A row that is there for one question is in every index, and in none afterwards."""
        fresh = attrs.evolve(data.draw(some_nodes("fresh")), created=float("inf"))
        pod_info = pod_info_of(some_pod("daemon", on="fresh", **asked), machine_of(fresh))
        with self.cluster.row_added(on_node(fresh, {pod_info.pod.uid: pod_info})) as slot:
            assert self.cluster.view.slot("fresh") == slot
            check_indexes(self.cluster, range(1, DEFINITIONS, 2))
        assert self.cluster.view.slot("fresh") is None

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), pick=picks)
    def replace_a_row(self, data: st.DataObject, pick: int) -> None:
        """A row is replaced for a while: by one without its pods, or with one more pod."""
        name = chosen(self.nodes, pick)
        before, slot = list(self.cluster.view.rows()), self.cluster.view.slot(name)
        assert slot is not None
        node_info = self.cluster.view.row(slot)
        replacement = with_pod(node_info, pod_info_of(data.draw(some_pods("z", name)), node_info.machine))
        for uid in node_info.pod_infos:
            replacement = without_pod(replacement, uid)
        with self.cluster.row_replaced(slot, replacement):
            assert self.cluster.view.row(slot) is replacement
            check_indexes(self.cluster, range(0, DEFINITIONS, 2))
        assert all(now is then for now, then in zip(self.cluster.view.rows(), before, strict=True))

    # What must hold

    @invariant()
    def indexes_are_the_obvious_evaluation(self) -> None:
        """A third of the indexes is used after each step, so that the others fall behind."""
        self.steps += 1
        check_indexes(self.cluster, range(self.steps % 3, DEFINITIONS, 3))

    @invariant()
    def a_rebuilt_cluster_is_equal(self) -> None:
        """Rows and what each pod holds are those of a process started now, in any order of arrival."""
        check_equal_to_rebuilt(self.cluster, self.nodes, self.pods, self.unreadable)

    @invariant()
    def what_is_free_is_what_nobody_holds(self) -> None:
        """The free cores are the machine's without those of the pods, read one by one."""
        for name in self.nodes:
            node_info = self._row(name)
            everything = node_info.machine.all_cores if node_info.machine else NO_CORES
            assert node_info.free_cores == everything & ~self._held(name)

    @invariant()
    def counts_agree(self) -> None:
        """The numbers of pods, and the node of each, are right."""
        assert (self.cluster.view.node_count, self.cluster.pod_count) == (len(self.nodes), len(self.pods))
        assert self.cluster.assumed_count == len(self.assumed)
        assert {uid: self.cluster.node_of(uid) for uid in self.pods} == {u: p.node_name for u, p in self.pods.items()}
        assert all(self.cluster.is_assumed(uid) for uid in self.assumed)

    @invariant()
    def forks_have_not_changed(self) -> None:
        """A copy does not change when its origin changes."""
        for fork, expected_nodes, pods, unreadable in self.forks:
            check_equal_to_rebuilt(fork, expected_nodes, pods, unreadable)
            check_indexes(fork, range(self.steps % 7, DEFINITIONS, 7))

    def teardown(self) -> None:
        check_indexes(self.cluster, range(DEFINITIONS))

    # The model

    def _see(self, seen: Pod) -> None:
        known = self.pods.get(seen.uid)
        kept = seen
        if known is not None and known.node_name == seen.node_name and seen.uid not in self.assumed | self.unreadable:
            first = self._cores(known)
            if first and first != self._cores(seen):
                kept = attrs.evolve(seen, allocation=known.allocation)
        self.cluster.put_pod(seen)
        self.unreadable.discard(seen.uid)
        self.assumed.discard(seen.uid)
        self.pods[seen.uid] = kept

    def _cores(self, bound: Pod) -> CoreMask | None:
        on = self.nodes.get(bound.node_name)
        return allocation_of(bound, machine_of(on) if on else None)[0]

    def _held(self, name: str) -> CoreMask:
        held = NO_CORES
        for uid, bound in self.pods.items():
            if bound.node_name == name and uid not in self.unreadable:
                held |= self._cores(bound) or NO_CORES
        return held

    def _row(self, name: str) -> NodeInfo:
        node_info = self.cluster.node(name)
        assert node_info is not None
        return node_info


def chosen(candidates: Iterable[str], pick: int) -> str:
    """Return one of the candidates, the same one each time."""
    ordered = sorted(candidates)
    return ordered[pick % len(ordered)]


TestCluster = ClusterMachine.TestCase
TestCluster.settings = settings(max_examples=examples(60), stateful_step_count=40)
