"""What a group is, when its members say different things, come, change and go."""

from random import Random
from typing import Final

import attrs

from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from tests.support.builders import pod

KEYS: Final = [GroupKey(Dialect.COSCHEDULING, "default", name) for name in ("one", "two")]


def check(groups: Groups, pods: dict[str, Pod]) -> None:
    """Compare with what follows from the pods."""
    for key in KEYS:
        members = {
            uid: each for uid, each in pods.items() if not each.terminating and each.group and each.group.key == key
        }
        said = [each.group for each in members.values() if each.group is not None]
        together = PodGroup(
            key,
            max((each.least for each in said), default=0),
            max((each.expected for each in said), default=0),
            max((each.topology for each in said), default=""),
        )
        placed = sum(bool(each.node_name) for each in members.values())
        assert (groups.members(key), groups.group(key), groups.placed(key)) == (members, together, placed)


def test_a_group_is_what_its_members_say_together() -> None:
    """The largest count and any topology, at every moment; a fork goes its own way."""
    dice, groups, pods = Random(1), Groups(), dict[str, Pod]()
    for _ in range(2_000):
        name = f"p{dice.randint(0, 9)}"
        if dice.random() < 0.3:
            groups.remove(pod(name).uid)
            pods.pop(pod(name).uid, None)
        else:
            group = PodGroup(
                dice.choice(KEYS), dice.randint(0, 3), dice.randint(0, 3), dice.choice(["", "rack", "zone"])
            )
            new = pod(name, group=dice.choice([group, group, group, None]), on=dice.choice(["", "n"]))
            new = attrs.evolve(new, terminating=dice.random() < 0.2)
            groups.put(new)
            pods[new.uid] = new
        check(groups, pods)
        fork = groups.fork()
        for uid in pods:
            fork.remove(uid)
        check(fork, {})
