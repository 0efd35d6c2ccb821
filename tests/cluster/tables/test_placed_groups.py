"""What a group's members with a node are together is what counting them anew would say, in a fork too."""

from collections import Counter
from random import Random

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from tests.support.builders import node, pod

GROUPS = [None, *(PodGroup(GroupKey(Dialect.KUEUE, "default", name), least=2) for name in "gh")]


def kind_of(each: Pod) -> tuple[str, ...]:
    return (str(each.priority % 2),)


def change(cluster: Cluster, dice: Random) -> None:
    uid = f"uid-p{dice.randrange(8)}"
    new = pod(
        uid.removeprefix("uid-"),
        on=dice.choice("ab"),
        group=dice.choice(GROUPS),
        priority=dice.randrange(4),
        terminating=dice.random() < 0.2,
        started=dice.choice([None, 1.0, 2.0]),
    )
    match dice.randrange(5):
        case 0:
            cluster.remove_pod(uid)
        case 1:
            cluster.set_evictable(uid, is_evictable=dice.random() < 0.5)
        case 2 if cluster.node_of(uid) is None:
            cluster.assume(new)
        case 3:
            cluster.forget(uid)
        case _:
            cluster.put_pod(new)


def check(cluster: Cluster) -> None:
    for group in GROUPS[1:]:
        assert group is not None
        rows = [row.pod_infos.values() for row in cluster.view.rows()]
        pod_infos = [each for row in rows for each in row if each.pod.group == group and not each.pod.terminating]
        pods, placed = [each.pod for each in pod_infos], cluster.placed_groups.of(group.key)
        assert placed.pods == {each.uid: each for each in pods}
        assert placed.kept == {each.pod.uid for each in pod_infos if not each.is_evictable}
        assert placed.total == sum(placed.priorities)
        assert placed.priorities == sorted(each.priority for each in pods)
        assert placed.starts == sorted(each.started for each in pods if each.started is not None)
        assert +Counter(placed.count_by_kind(kind_of)) == Counter(map(kind_of, pods))


@pytest.mark.parametrize("seed", range(20))
def test_the_members_are_what_the_rows_say(seed: int) -> None:
    dice = Random(seed)
    clusters = [Cluster()]
    for name in "ab":
        clusters[0].put_node(node(name, "trn1.32xlarge"))
    for _ in range(150):
        cluster = dice.choice(clusters)
        change(cluster, dice)
        if dice.random() < 0.1:
            clusters = [cluster, cluster.fork()]
        if dice.random() < 0.1:
            cluster.placed_groups.of(dice.choice(GROUPS[1:]).key).count_some(kind_of, 2)  # type: ignore[union-attr]
        if dice.random() < 0.3:
            for each in clusters:
                check(each)
