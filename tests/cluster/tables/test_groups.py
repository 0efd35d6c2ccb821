"""What a group is, when its members say different things, come, change and go."""

from collections import Counter
from random import Random
from typing import Any, Final

import attrs

from neuron_scheduler.cluster.tables.groups import MOST_SAYINGS, Groups
from neuron_scheduler.model.pod import Owner, Pod
from neuron_scheduler.model.pod_group import UNKNOWN, Dialect, GroupKey, PodGroup
from tests.support.builders import pod

OWNERS: Final = [Owner("batch/v1", "Job", name) for name in "ab"]
OURS: Final = frozenset({"ours"})
KEYS: Final = [GroupKey(Dialect.COSCHEDULING, "default", name) for name in ("one", "two")]


def check(groups: Groups, pods: dict[str, Pod], objects: dict[GroupKey, PodGroup]) -> None:
    """Compare with what follows from the pods and the PodGroups."""
    for key in KEYS:
        members = {
            uid: each for uid, each in pods.items() if not each.terminating and each.group and each.group.key == key
        }
        said = [each.group for each in members.values() if each.group is not None]
        said += [objects[key]] if key in objects else []
        domains = {(each.group.topology, each.group.of) for each in members.values() if each.group} - {("", "")}
        together = PodGroup(
            key,
            max((each.least for each in said), default=0) or (UNKNOWN if members and groups.watched else 0),
            max((each.expected for each in said), default=0),
            (objects[key].topology if key in objects else "") or (domains.pop()[0] if len(domains) == 1 else ""),
        )
        placed = sum(bool(each.node_name) for each in members.values())
        assert (groups.members(key), groups.group(key), groups.placed_count(key)) == (members, together, placed)
        foreign = Counter(
            each.scheduler_name
            for each in members.values()
            if each.neuron and not each.node_name and each.scheduler_name not in groups.served
        )
        assert (groups.foreign_members(key), groups.present_count(key)) == (foreign, len(members) - foreign.total())
        owners = {"no controller" if each.owner is None else f"Job {each.owner.name}" for each in members.values()}
        assert groups.owners(key) == sorted(owners)


def test_a_group_is_what_its_members_say_together() -> None:
    """The largest count and the only domain, at every moment, and who counts, whatever others' schedulers do."""
    dice, groups, pods, objects = Random(1), Groups(served=OURS), dict[str, Pod](), dict[GroupKey, PodGroup]()
    for _ in range(2_000):
        key = dice.choice(KEYS)
        if dice.random() < 0.1:
            objects[key] = PodGroup(key, dice.randint(1, 4), dice.randint(1, 4), dice.choice(["", "zone"]))
            groups.declare(objects[key])
        elif dice.random() < 0.1:
            groups.withdraw(key)
            objects.pop(key, None)
        name = f"p{dice.randint(0, 9)}"
        if dice.random() < 0.3:
            groups.remove(pod(name).uid)
            pods.pop(pod(name).uid, None)
        else:
            group = PodGroup(
                dice.choice(KEYS),
                dice.randint(0, 3),
                dice.randint(0, 3),
                *dice.choice([("", ""), ("", ""), ("zone", ""), ("zone", "job")]),
            )
            rest: dict[str, Any] = {"scheduler_name": dice.choice(["ours", "other"]), "devices": dice.choice([0, 16])}
            new = pod(name, group=dice.choice([group, group, group, None]), on=dice.choice(["", "n"]), **rest)
            new = attrs.evolve(new, terminating=dice.random() < 0.2, owner=dice.choice([None, *OWNERS]))
            groups.put(new)
            pods[new.uid] = new
        check(groups, pods, objects)
        fork = groups.fork()
        for uid in pods:
            fork.remove(uid)
        for key in KEYS:
            fork.withdraw(key)
        check(fork, {}, {})


def test_only_some_different_sayings_of_a_group_count() -> None:
    """Those that came first: with each of them every question about the group takes longer."""
    groups, pods = (
        Groups(served=OURS),
        [pod(f"p{number}", group=PodGroup(KEYS[0], number, number)) for number in range(1000)],
    )
    for each in (*pods, *pods):
        groups.put(each)
    assert groups.group(KEYS[0]) == PodGroup(KEYS[0], MOST_SAYINGS - 1, MOST_SAYINGS - 1)
    assert groups.members(KEYS[0]) == {each.uid: each for each in pods}
    for each in pods:
        groups.remove(each.uid)
    check(groups, {}, {})


def test_pods_of_a_group_that_needs_one_member_are_decided_alone() -> None:
    """Unless a topology keeps them together."""
    groups, member = Groups(), pod("p", group=PodGroup(KEYS[0]))
    groups.put(member)
    assert groups.group_of(member) == groups.group(KEYS[0])
    groups.declare(PodGroup(KEYS[0], 1, 1))
    assert groups.group_of(member) is None
    groups.declare(PodGroup(KEYS[0], 1, 1, "rack"))
    assert groups.group_of(member) == PodGroup(KEYS[0], 1, 1, "rack")
    assert groups.group_of(pod("q")) is None


def test_pods_beyond_what_a_group_needs_are_decided_alone() -> None:
    """They are as any other, until it loses a member; but a domain that an object says binds them, too."""
    groups, group = Groups(), PodGroup(KEYS[0], 2, 2)
    for name in "ab":
        groups.put(pod(name, group=group, on="n"))
    late = pod("late", group=group)
    groups.put(late)
    assert groups.group_of(late) is None
    groups.declare(PodGroup(KEYS[0], 2, 2, "rack"))
    assert groups.group_of(late) == PodGroup(KEYS[0], 2, 2, "rack")
    groups.withdraw(KEYS[0])
    groups.remove("uid-a")
    assert groups.group_of(late) == group


def test_a_thousand_scheduler_names_are_few() -> None:
    """A tenant may give each member its own; their number is right, and nothing is left of those that go."""
    groups, group = Groups(served=OURS), PodGroup(KEYS[0], least=2)
    members = [pod(f"p{number}", devices=1, scheduler_name=f"s{number}", group=group) for number in range(1_000)]
    for each in (*members, pod("ours", devices=1, scheduler_name=next(iter(OURS)), group=group)):
        groups.put(each)
    assert len(groups.foreign_members(KEYS[0])) == MOST_SAYINGS + 1
    assert groups.present_count(KEYS[0]) == 1
    for each in members:
        groups.remove(each.uid)
    assert (groups.foreign_members(KEYS[0]), groups.present_count(KEYS[0])) == (Counter(), 1)
