"""An explanation as a person reads it; the pages show whole ones (`tests/test_documented_output.py`)."""

import re
from typing import Any

import attrs
import pytest

from neuron_scheduler.commands.why_text import CAUSES, MOST_GROUPS, MOST_REASONS, WhyText, waiting_lines
from neuron_scheduler.explain.answers import (
    ChangeKind,
    Explanation,
    LeavingPod,
    NodeGroup,
    PodSummary,
    SuggestedChange,
    Verdict,
    Waiting,
    WaitingEntry,
)
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.telemetry.terminal import Paragraphs

NOW = 100_000.0
TRN1 = "trn1.32xlarge"
FIT = "Insufficient aws.amazon.com/neuron"
POD = PodSummary("ml", "train-0", "my-scheduler", 7, NOW - 12_000, "16 Neuron devices")
LEAVING = LeavingPod("ml", "old", 0, NOW - 600, "4 Neuron devices", ("web",), violates=True, evictable=True)
ANSWER = Explanation(
    POD,
    Verdict.WAITS,
    "0/5 nodes are available: 5 Insufficient aws.amazon.com/neuron. Fragmentation: 28 Neuron devices free on 4 nodes.",
    cause="fragmentation",
    nodes=5,
    groups=(
        NodeGroup(4, ("a", "b", "c", "d"), TRN1, "NodeResourcesFit", FIT, "needs 16; allocatable 16, used 9, free 7"),
        NodeGroup(1, ("cpu",), "", "NodeResourcesFit", FIT, "needs 16; the node has none"),
    ),
    changes=(
        SuggestedChange(ChangeKind.COUNT, "Ask for 4 Neuron devices instead of 16: it then goes to a."),
        SuggestedChange(
            ChangeKind.DEPARTURE, "ml/old ends on b.", "kubectl delete pod --namespace ml old", "b", pods=(LEAVING,)
        ),
    ),
    notes=("Budgets could not be read.",),
)


def text(answer: Explanation, width: int = 100, *, wide: bool = False, colour: bool = False) -> str:
    """Return an answer as it is printed."""
    writer = WhyText(Paragraphs(width, colour), wide=wide, now=NOW)
    return "\n".join(writer.lines(answer))


def test_a_machine_that_is_asked_for() -> None:
    """The sentence is a paragraph after the cause."""
    lines = text(attrs.evolve(ANSWER, capacity_request="Asked the autoscaler for 1 trn1.32xlarge.")).split("\n")
    place = lines.index("Asked the autoscaler for 1 trn1.32xlarge.")
    assert lines[place - 1] == lines[place + 1] == ""
    assert lines[place - 2].startswith("block.")
    assert lines[place + 2].startswith("Nodes by reason")


def test_who_decides_comes_first() -> None:
    """Nobody reads a green "fits" of a pod that this scheduler never places."""
    assert text(attrs.evolve(ANSWER, decider="Another one does.")).splitlines()[0] == "Another one does."


def test_a_bound_pod_and_another_node() -> None:
    """A node that does not take it says nothing about how long it has waited."""
    elsewhere = attrs.evolve(ANSWER, node_name="a")
    assert text(elsewhere).startswith("ml/train-0 has a node (16 Neuron devices, priority 7)")


def test_a_narrow_terminal() -> None:
    """Text is wrapped, a command is not."""
    lines = text(ANSWER, 60).split("\n")
    assert max(len(line) for line in lines if "$ " not in line) <= 60
    assert "    $ kubectl delete pod --namespace ml old" in lines


def test_everything() -> None:
    """`-o wide` has all names and groups."""
    many = [attrs.evolve(ANSWER.groups[0], arithmetic=f"needs {i}", names=(f"n{i}",), nodes=1) for i in range(9)]
    answer = attrs.evolve(ANSWER, groups=tuple(many), nodes=9)
    assert f"{9 - MOST_GROUPS} more nodes with other figures (-o wide shows all)" in text(answer)
    assert "n8 (trn1.32xlarge)" in text(answer, wide=True)
    assert "-o wide" not in text(answer, wide=True)
    assert "a, b, c, d (trn1.32xlarge)" in text(ANSWER, wide=True)


def test_many_reasons() -> None:
    """The most promising ones are shown, the other nodes are counted."""
    groups = tuple(attrs.evolve(ANSWER.groups[1], reason=f"reason {i}", nodes=2) for i in range(MOST_REASONS + 3))
    assert "  6 more nodes for other reasons (-o wide shows all)" in text(attrs.evolve(ANSWER, groups=groups))


@pytest.mark.parametrize(
    ("verdict", "cause", "title"),
    [
        (Verdict.FITS, "", "ml/train-0 fits (16 Neuron devices, priority 7)"),
        (Verdict.GATED, "gated", "ml/train-0 has been gated for 3h20m (16 Neuron devices, priority 7)"),
        (Verdict.BOUND, "", "ml/train-0 has a node (16 Neuron devices, priority 7)"),
    ],
)
def test_other_verdicts(verdict: Verdict, cause: str, title: str) -> None:
    """The first line says how it is with the pod."""
    answer = attrs.evolve(ANSWER, verdict=verdict, cause=cause, groups=(), changes=())
    assert text(answer).startswith(f"{title}\n\n0/5 nodes")


def test_nodes_that_take_it_and_space_kept_for_others() -> None:
    """They come without a reason of a filter."""
    groups = (
        NodeGroup(2, ("a", "b"), TRN1, arithmetic="needs 1; 4 of 16 free"),
        NodeGroup(1, ("c",), TRN1, "NodeResourcesFit", FIT, "kept for ml/first", kept_for=("ml/first",)),
    )
    lines = text(attrs.evolve(ANSWER, groups=groups)).split("\n")
    assert "  2 nodes: would take the pod" in lines
    assert "  1 node: would take the pod, but the space is kept for others" in lines


def test_pods_that_the_reader_may_not_see() -> None:
    """The running scheduler leaves their names out."""
    nameless = attrs.evolve(LEAVING, namespace="", name="")
    change = attrs.evolve(ANSWER.changes[1], pods=(nameless,))
    assert "    a pod that you may not see (4 Neuron devices, priority 0; " in text(
        attrs.evolve(ANSWER, changes=(change,))
    )


def test_colour_is_around_whole_lines() -> None:
    """Without it, the text is the same."""
    coloured = text(ANSWER, colour=True)
    assert "\033[33mml/train-0 has been Pending for 3h20m (16 Neuron devices, priority 7)\033[0m" in coloured
    assert "\033[1mWhat would let it in\033[0m" in coloured
    plain = coloured
    for code in ("0", "1", "31", "32", "33"):
        plain = plain.replace(f"\033[{code}m", "")
    assert plain == text(ANSWER)


def hostile(value: Any) -> Any:
    """Return an answer with each string replaced by one that would control a terminal."""
    match value:
        case str():
            return f"\x1b]0;{value}\x07\n\u202e"
        case tuple():
            return tuple(map(hostile, value))
        case _ if attrs.has(type(value)) and not isinstance(value, Verdict | ChangeKind):
            names = [field.name for field in attrs.fields(type(value)) if field.name not in ("kind", "verdict")]
            changed = {name: hostile(getattr(value, name)) for name in names}
            return attrs.evolve(value, **changed)
        case _:
            return value


def test_hostile_strings_are_made_visible() -> None:
    """No character that is not printable leaves, whatever the cluster's names are."""
    answer = hostile(ANSWER)
    assert isinstance(answer, Explanation)
    printed = text(answer, wide=True)
    assert "\\x1b" in printed
    assert all(line.isprintable() for line in printed.split("\n"))


def test_every_cause_has_a_meaning() -> None:
    """A new cause needs a sentence for people."""
    assert CAUSES.keys() == set(Cause)


WAITING = Waiting(
    (
        WaitingEntry(
            PodSummary("ml", "train-0", "my-scheduler", created=1000.0, asks="8 Neuron devices"), "capacity", "0/5 ..."
        ),
        WaitingEntry(PodSummary("default", "e\x1b[2Jvil\n" + "x" * 200), "", "Fits now, on a."),
    ),
    total=2,
)


def test_the_columns() -> None:
    """Like kubectl's, and wide ones with the message."""
    heading, first, second = waiting_lines(WAITING, "", 1090.0)
    assert heading.split() == ["NAMESPACE", "NAME", "ASKS", "FOR", "AGE", "CAUSE"]
    assert first.split() == ["ml", "train-0", "8", "Neuron", "devices", "1m30s", "capacity"]
    assert first.index("8 Neuron") == heading.index("ASKS FOR")
    assert second.endswith("<unknown>   fits")
    assert second.isprintable()
    assert len(second) < 200
    heading, first, _ = waiting_lines(WAITING, "", 1090.0, wide=True)
    assert heading.endswith("MESSAGE")
    assert first.endswith("0/5 ...")


def test_a_group_is_named_where_there_is_one() -> None:
    """In the title of its pod, and in a column of the list if some pod is in a group."""
    member = PodSummary("ml", "train-0", "my-scheduler", asks="16 Neuron devices", group="train")
    nodes = (NodeGroup(3, ("a",)),)
    lines = [*WhyText(Paragraphs()).lines(Explanation(member, Verdict.WAITS, "", nodes=3, groups=nodes))]
    assert lines[0] == "ml/train-0 is Pending (16 Neuron devices, priority 0, group train)"
    assert "Nodes by reason (3 nodes, for this pod alone)" in lines
    alone = WaitingEntry(PodSummary("ml", "solo"), "capacity", "0/5 ...")
    heading, first, second = waiting_lines(Waiting((WaitingEntry(member, "group", "3 of 4 ..."), alone)), "", 0.0)
    assert heading.endswith("CAUSE      GROUP")
    assert first.endswith("group      train")
    assert second.endswith("capacity")
    wide = [*waiting_lines(Waiting((alone, WaitingEntry(member, "group", "3 of 4 ..."))), "", 0.0, wide=True)]
    assert wide[2].split("   ")[-3:] == ["train", "my-scheduler", "3 of 4 ..."]


@pytest.mark.parametrize("shared", [{"group": "train"}, {"owner": "ReplicaSet web"}])
def test_members_and_replicas_that_pend_alike_are_one_row(shared: dict[str, Any]) -> None:
    """With the oldest of them; one that pends for another reason has a row of its own."""
    alike = [
        WaitingEntry(
            PodSummary("ml", f"p-{i}", created=1000.0 + i, asks="16 Neuron devices", **shared), "capacity", "x"
        )
        for i in range(9)
    ]
    other = attrs.evolve(alike[-1], cause="taints")
    rows = [*waiting_lines(Waiting((*alike[:8], other)), "", 1090.0)][1:]
    assert [re.split("  +", row)[1] for row in rows] == ["p-0 and 7 more", "p-8"]
    assert "1m30s" in rows[0]
    fitting = [attrs.evolve(each, cause="", message=f"fits on n{i}") for i, each in enumerate(alike)]
    assert len([*waiting_lines(Waiting((*fitting,)), "", 1090.0)]) == 2
    assert len([*waiting_lines(Waiting((*fitting,)), "", 1090.0, wide=True)]) == 10


def test_nobody_waits() -> None:
    """A sentence in place of an empty table."""
    assert list(waiting_lines(Waiting(()), "in namespace ml", 0.0)) == [
        "No pod that asks for Neuron is Pending in namespace ml."
    ]
