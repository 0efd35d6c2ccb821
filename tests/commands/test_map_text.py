"""The fleet as it is drawn, to the letter: pictures of few machines, lines for many, wide and narrow."""

import textwrap
from collections.abc import Sequence

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.commands.map_text import MapText, group_machines, sums_of
from neuron_scheduler.explain.answers import Fleet, Holder
from neuron_scheduler.explain.fleet import fleet
from neuron_scheduler.model.node import ULTRASERVER_2, ULTRASERVER_4, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.steps import run
from neuron_scheduler.telemetry.terminal import Paragraphs
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

TRN1 = "trn1.32xlarge"


def held(name: str, on: str, *ids: int) -> Pod:
    return pod(name, devices=len(ids), on=on, ids=ids)


def drawn(nodes: Sequence[Node], pods: Sequence[Pod] = ()) -> Fleet:
    return run(fleet(cluster_of(nodes, pods)))


def some_of_everything() -> Cluster:
    """Return a cluster with each state of a core."""
    nodes = [
        node("trn1-a", TRN1, labels={ZONE_LABEL: "us-west-2a"}),
        node("trn1-b", TRN1, created=1, unschedulable=True),
        node("inf2-a", "inf2.48xlarge", created=2),
    ]
    pods = [
        held("train", "trn1-a", 0, 1, 2, 3),
        pod("core", cores=1, on="trn1-a", ids=(8,)),
        held("old", "inf2-a", 3, 4, 5),
        held("rival", "inf2-a", 5, 6),
    ]
    cluster = cluster_of(nodes, pods)
    cluster.nominate("trn1-a", Nomination(pod("next", devices=8, priority=5), CoreMask((1 << 16) - 1 << 16)))
    cluster.set_aside("trn1-a", NO_CORES)
    return cluster


def text(fleet: Fleet, width: int = 100, *, colour: bool = False, **settings: object) -> str:
    return "\n".join(MapText(Paragraphs(width, colour), **settings).lines(fleet))  # type: ignore[arg-type]  # passed on


def shown(frame: str) -> str:
    return textwrap.dedent(frame).strip()


def test_pictures_of_a_few_machines() -> None:
    """A grid, a ring, holders with letters, and a character for each state."""
    assert text(run(fleet(some_of_everything())), 80) == shown("""
        All: 3 nodes, 44 devices: 10 free (largest block 5), 9 used, 25 withheld

        inf2-a                     trn1-a                     trn1-b
        inf2.48xlarge              trn1.32xlarge us-west-2a   trn1.32xlarge
        ╭··─··─··─AA─AA─!!╮        AA─AA─AA─AA                xx─xx─xx─xx
        │                 │        │  │  │  │                 │  │  │  │
        ╰··─··─··─··─··─BB╯        B·─··─··─··                xx─xx─xx─xx
        7/12 devices free          │  │  │  │                 │  │  │  │
        in blocks of 5, 2          ++─++─++─++                xx─xx─xx─xx
        double-booked              │  │  │  │                 │  │  │  │
        A default/old              ++─++─++─++                xx─xx─xx─xx
        B default/rival            3/16 devices free          0/16 devices free
                                   in blocks of 3x1           cordoned
                                   space kept
                                   set aside
                                   A default/train
                                   B default/core
                                   + default/next

        a character is a core; A-z a pod; + kept for a pending pod; ! double-booked; x
        free, but withheld; · free.
    """)


def test_many_machines_get_a_line_each() -> None:
    """What is free first, and full ones last; a character is a device; equal lines are one, and the rest is counted."""
    nodes = [node(f"trn1-{i}", TRN1, created=i) for i in range(20)]
    pods = [
        held("p", "trn1-1", *range(8)),
        pod("c", cores=1, on="trn1-1", ids=(16,)),
        held("q", "trn1-2", *range(16)),
        pod("u", devices=2, on="trn1-3"),
    ]
    lines = text(drawn(nodes, pods)).split("\n")
    assert lines[3:-2] == [
        "  trn1-0 and 16 more  ···· ···· ···· ····  16/16 free  16",
        "  trn1-1              #### #### %··· ····  7/16 free   4, 3x1",
        "  trn1-3              ???? ???? ???? ????  0/16 free           unknown holder",
        "  trn1-2              #### #### #### ####  0/16 free",
    ]
    used = [held(f"p{i}", f"trn1-{i}", i) for i in range(16)]
    assert text(drawn(nodes, used)).split("\n")[-3] == "  and 5 more nodes with 75 free devices (-o wide lists all)"
    assert "more node" not in text(drawn(nodes, pods), every_machine=True)
    assert "trn1-19" in text(drawn(nodes, pods), every_machine=True)


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Names are cut, sentences are wrapped."""
    long = [node(f"ip-10-0-0-{i}.us-west-2.compute.internal", TRN1) for i in range(20)]
    for machines in (long, long[:2]):
        lines = text(drawn(machines, [pod("u", devices=1, on=long[0].name)]), width).split("\n")
        assert max(map(len, lines)) <= width


def test_groups() -> None:
    """By UltraServer and zone, too; machines without one come last."""
    nodes = [node("a", TRN1, labels={ZONE_LABEL: "y"}), node("b", TRN1, labels={ZONE_LABEL: "x"}), node("c", TRN1)]
    names = [name for name, _ in group_machines(drawn(nodes), "zone")]
    assert names == ["Zone x", "Zone y", "In no zone"]
    assert [name for name, _ in group_machines(drawn(nodes), "ultraserver")] == ["In no UltraServer"]
    assert "Zone y: 1 node, 16 devices: 16 free" in text(drawn(nodes), by="zone")
    many = [node(f"n{i}", TRN1, labels={ZONE_LABEL: "x"}) for i in range(9)]
    row = "  n0 and 8 more  ···· ···· ···· ····  16/16 free  16  trn1.32xlarge"
    assert row in text(drawn(many), by="zone").split("\n")


@pytest.mark.parametrize(
    ("key", "machines", "said"),
    [
        (ULTRASERVER_4, 4, "; intact"),
        (ULTRASERVER_2, 2, "; intact"),
        (ULTRASERVER_4, 3, "; has 3 of its 4 machines, 3 free"),
        ("topology.k8s.aws/capacity-block-id", 4, ""),
    ],
)
def test_an_ultraserver_is_intact_or_broken(key: str, machines: int, said: str) -> None:
    """It is intact if all of its machines are there and free; one that is used in part or cordoned breaks it."""
    nodes = [node(f"n{i}", "trn2u.48xlarge", labels={key: "s1"}) for i in range(machines)]
    cordoned = [*nodes[1:], attrs.evolve(nodes[0], unschedulable=True)]
    used = (pod("p", devices=1, on="n0", ids=(0,)),)
    fleets = (drawn(nodes), drawn(nodes, used), drawn(cordoned))
    lines = [next(line for line in text(f, 200, by="ultraserver").split("\n") if " s1" in line) for f in fleets]
    assert lines[0].partition(" withheld")[2] == said
    assert [" of its " in line for line in lines[1:]] == [bool(said)] * 2


def test_one_node() -> None:
    """Its picture alone; of many pods the first ones are named."""
    nodes = [node(f"trn1-{i}", TRN1) for i in range(9)]
    pods = [pod(f"c{i:02}", cores=1, on="trn1-3", ids=(i,)) for i in range(20)]
    (machine,) = (each for each in drawn(nodes, pods).machines if each.node_name == "trn1-3")
    lines = [*MapText(Paragraphs()).node_lines(machine)]
    assert lines[1:4] == ["trn1-3", TRN1, "AB─CD─EF─GH"]
    assert "L default/c11" in lines
    assert "and 8 more" in lines


def test_one_machine_has_its_names_in_full() -> None:
    """Beside it there is nothing that needs the room."""
    name, training = "ip-10-0-12-56.us-west-2.compute.internal", "llama-70b-inference-7c9d8b6f5c-x2x9q"
    (machine,) = drawn([node(name, TRN1)], [pod(training, cores=1, on=name, ids=(0,))]).machines
    lines = [*MapText(Paragraphs()).node_lines(machine)]
    assert lines[1] == name
    assert f"A default/{training}" in lines


def test_low_pictures_are_stacked() -> None:
    """A torus is high: beside it there is room for several small machines."""
    lines = text(drawn([node("a", TRN1), node("b", "inf2.xlarge"), node("c", "inf2.xlarge")]), 80).split("\n")
    assert lines[2].split() == ["a", "b"]
    assert [line[27:] for line in lines[2:11]] == [
        "b", "inf2.xlarge", "··", "1/1 devices free", "", "c", "inf2.xlarge", "··", "1/1 devices free",
    ]  # fmt: skip


def test_no_machines() -> None:
    """A sentence, and the notes."""
    assert text(Fleet((), (), ("Names are left out.",))) == "No node has Neuron.\n\nNote: Names are left out."


def test_machines_that_are_left_out() -> None:
    """The sums of all come first; those of the pictured ones say so, and no UltraServer is judged by a part of it."""
    labels = {ULTRASERVER_4: "s1"}
    cluster = cluster_of([node(f"n{i}", "trn2u.48xlarge", labels=labels) for i in range(4)])
    lines = text(run(fleet(cluster, most=2)), 200, by="ultraserver").split("\n")
    assert lines[0].startswith("trn2u.48xlarge: 4 nodes, 64 devices: 64 free")
    assert lines[1].startswith("Pictured: 2 nodes, 32 devices: 32 free")
    assert "intact" in text(run(fleet(cluster)), 200, by="ultraserver")
    assert "intact" not in "".join(lines)
    assert lines[-1] == "Note: 2 of 4 machines are pictured: some of each kind, then the worst."


def test_names_that_the_reader_may_not_see() -> None:
    """The pods are drawn without them."""
    fleet_without = drawn([node("a", TRN1)], [held("secret", "a", 0)])
    machine = attrs.evolve(fleet_without.machines[0], holders=(Holder("", "", ((0, 1),)),))
    assert "A a pod" in text(Fleet((machine,), ())).split("\n")


def test_cores_without_devices_and_states_of_a_newer_version() -> None:
    """A machine that serves cores only has no devices in the sums; an unknown letter is an unknown core."""
    cores_only = node("a", "inf2.xlarge", devices=0, allocatable={"aws.amazon.com/neuroncore": 2})
    answer = drawn([cores_only])
    assert sums_of("All", answer.machines).startswith("All: 1 node, 0 devices: 0 free")
    assert "2/2 cores free" in text(answer)
    newer = attrs.evolve(answer.machines[0], cores="zf")
    assert "?─·" in text(Fleet((newer,), ()))


def test_colour_adds_nothing_but_colour() -> None:
    """Without the codes, the map is the same."""
    answer = run(fleet(some_of_everything()))
    coloured = text(answer, colour=True)
    assert "\033[30;48;5;117mA\033[0m" in coloured
    plain = "".join(part.partition("m")[2] if place else part for place, part in enumerate(coloured.split("\033[")))
    assert [line.rstrip() for line in plain.split("\n")] == text(answer).split("\n")


def test_hostile_names_cannot_control_the_terminal() -> None:
    """Names of nodes, types, zones and pods are made visible."""
    evil = "\x1b]0;x\x07\n\u202e"
    answer = drawn([node(f"{evil}{i}", f"{evil}t", devices=2, labels={ZONE_LABEL: evil}) for i in range(9)])
    few = Fleet(
        tuple(attrs.evolve(machine, holders=(Holder(evil, evil),)) for machine in answer.machines[:2]), (), (evil,)
    )
    one = "\n".join(MapText(Paragraphs()).node_lines(answer.machines[0]))
    for drawing in (text(answer), text(few), text(answer, by="zone"), one):
        assert all(line.isprintable() for line in drawing.split("\n"))
