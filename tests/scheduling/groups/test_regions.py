"""AWS's recipe for UltraServers: a job gets whole ones where enough are intact, and its ranks follow the ring."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.kube.objects.groups import affinity
from neuron_scheduler.model.node import ULTRASERVER_2, ULTRASERVER_4, ULTRASERVER_PLACES
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import LabelSelector, Operator, PodAffinityTerm, Requirement
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.groups.gang import GroupPlan, GroupRefusal, gang_of
from neuron_scheduler.scheduling.groups.plan import plan_group
from neuron_scheduler.steps import run
from tests.support.builders import node, pod
from tests.support.harness import cluster_of
from tests.support.random_groups import PROFILE
from tests.support.storage import claim, stored
from tests.support.thoroughness import examples

NAMES: Final = ("launcher", "kept", "other")
SIZES: Final = {ULTRASERVER_2: 2, ULTRASERVER_4: 4}
WORKER: Final = {"job-name": "train", "job-role": "worker"}
SELECTOR: Final = LabelSelector(tuple(Requirement(key, Operator.IN, (value,)) for key, value in WORKER.items()))


def fleet(dice: Random) -> tuple[Cluster, dict[str, dict[str, list[str]]]]:
    """Return 12 UltraServers, some of them broken; and by label and id, the names of the free nodes in ring order."""
    cluster, free = (
        stored((), *(claim(f"w{i}-scratch", class_name="gp3") for i in range(16))),
        dict[str, dict[str, list[str]]](),
    )
    for i, age in enumerate(dice.sample(range(48), 48)):
        name, ids = f"n{age}", {key: f"u{i // size}" for key, size in SIZES.items()}
        labels = {**ids, **{ULTRASERVER_PLACES[key]: str(i % size) for key, size in SIZES.items()}}
        state = dice.choice(["free", "free", "free", "free", "free", "in use", "cordoned"])
        cordoned = state == "cordoned"
        cluster.put_node(node(name, "trn2.48xlarge", labels=labels, created=float(age), unschedulable=cordoned))
        if state == "in use":
            cluster.put_pod(pod(f"used-{i}", devices=1, ids=[0], on=name))
        for key, value in ids.items() if state == "free" else ():
            free.setdefault(key, {}).setdefault(value, []).append(name)
    return cluster, free


def workers(count: int, key: str, *, required: bool, scratch: bool) -> list[Pod]:
    """Return the workers of a job, in any order, with AWS's term about each other, a number, perhaps a claim."""
    term = PodAffinityTerm(key, SELECTOR, frozenset({"default"}), weight=0 if required else 100)
    asked = {"affinity": (term,)} if required else {"preferred_affinity": (term,)}
    made = [
        pod(
            f"w{i}",
            devices=16,
            labels={**WORKER, "replica-index": str(i)},
            rank=i,
            volume_claims=(f"w{i}-scratch",) if scratch else (),
            **asked,  # type: ignore[arg-type]
        )
        for i in range(count)
    ]
    said = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), least=count, expected=count)
    group = affinity.read("default", WORKER, made[0].constraints) if required else said
    return [attrs.evolve(each, group=group) for each in reversed(made)]


def place(cluster: Cluster, members: Sequence[Pod]) -> list[str] | int:
    """Plan for a job; return the nodes by rank, or how many of its members fit at once."""
    for each in members:
        cluster.groups.put(each)
    found = run(plan_group(cluster, gang_of(cluster, members), PROFILE, IndexWarmup()))
    if isinstance(found, GroupRefusal):
        return found.fitting
    assert isinstance(found, GroupPlan)
    assert not found.left_out
    return [taken.decision.node_name for taken in sorted(found.members, key=lambda taken: taken.pod.rank)]


@pytest.mark.parametrize("part", range(examples(8)))
def test_the_recipe_gets_whole_ultraservers(part: int) -> None:
    """Required: one intact UltraServer or nothing, for two a pair. Preferred, with a count: whole ones, else any."""
    whole = 0
    for seed in range(part * 25, part * 25 + 25):
        scratch = seed % 3 == 0
        for key, size in SIZES.items():
            cluster, free = fleet(Random(seed))
            intact = [names for names in free[key].values() if len(names) == size]
            found = place(cluster, workers(size, key, required=True, scratch=scratch))
            assert found in intact if intact else found == max(map(len, free[key].values()))
        cluster, free = fleet(Random(seed))
        pairs = [names for names in free[ULTRASERVER_2].values() if len(names) == 2]
        two = workers(2, ULTRASERVER_4, required=True, scratch=scratch)
        sized = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "two"), expected=2, topology=ULTRASERVER_4)
        found = place(cluster, [attrs.evolve(each, group=sized) for each in two])
        assert found in pairs or not pairs
        cluster, free = fleet(Random(seed))
        found = place(cluster, workers(16, ULTRASERVER_4, required=False, scratch=scratch))
        assert isinstance(found, list)
        intact = [names for names in free[ULTRASERVER_4].values() if len(names) == 4]
        whole += len(intact) >= 4
        assert len(intact) < 4 or all(found[i : i + 4] in intact for i in range(0, 16, 4))
    assert whole > 3


@pytest.mark.parametrize("pinned", [{}, {"node_selector": {"for": "launchers"}}], ids=["free", "pinned"])
def test_a_launcher_without_neuron_goes_where_such_pods_go(pinned: dict[str, Any]) -> None:
    """It does not count for the UltraServer of the workers, and takes none of its nodes."""
    cluster, free = fleet(Random(1))
    cluster.put_node(node("cpu", "m7i.large", labels={"for": "launchers"}, created=1e9))
    group = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), least=5, expected=5)
    workers = [pod(f"w{rank}", devices=16, rank=rank, group=group) for rank in range(1, 5)]
    found = place(cluster, [pod("launcher", cpu=1, group=group, **pinned), *workers])
    assert isinstance(found, list)
    assert found[0] == "cpu"
    assert found[1:] in free[ULTRASERVER_4].values()


def test_a_member_with_kept_space_goes_there_and_the_next_one_to_the_same_ultraserver() -> None:
    """Although a tighter one has room for the next one; only a launcher is bound so far."""
    cluster = cluster_of([node("cpu", "m7i.large", created=1e9)])
    for i in range(8):
        labels = {key: f"u{i // size}" for key, size in SIZES.items()}
        cluster.put_node(
            node(f"n{i}", "trn2.48xlarge", labels=labels, created=float(i), unschedulable=i in (0, 1, 3, 4))
        )
    group = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), least=3, expected=3)
    launcher, kept, other = (pod(name, devices=16 * (name != "launcher"), group=group) for name in NAMES)
    cluster.put_pod(attrs.evolve(launcher, node_name="cpu"))
    cluster.groups.put(attrs.evolve(launcher, node_name="cpu"))
    cluster.nominate("n5", Nomination(kept, CoreMask((1 << 64) - 1)))
    assert place(cluster, [other, kept]) == ["n5", "n6"]
