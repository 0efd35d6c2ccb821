"""The text of the answer: its sentences, in any width, and nothing in it that controls the terminal."""

import attrs
import pytest

from neuron_scheduler.commands.fit_text import FitText, headline
from neuron_scheduler.explain.answers import Fit, Limit, PlannedPod
from neuron_scheduler.telemetry.terminal import Paragraphs

LIMIT = Limit(
    "0/2 nodes are available: 2 Insufficient aws.amazon.com/neuron. Capacity: 0 Neuron devices free on 2 nodes,"
    " largest free block 0, pod needs 8.",
    "capacity",
    3,
)
ANSWER = Fit(
    name="Job train",
    asks="8 Neuron devices",
    asked=4,
    fitting=3,
    placed=(
        PlannedPod(1, "trn1-a", "trn1.32xlarge", ids=tuple(range(8, 16)), unit="device"),
        PlannedPod(2, "trn1-b", "trn1.32xlarge", ids=tuple(range(8)), unit="device"),
        PlannedPod(3, "trn1-b", "trn1.32xlarge", ids=tuple(range(8, 16)), unit="device"),
    ),
    total=3,
    limit=LIMIT,
    notes=("Evictions of pods of lower priority are not considered.",),
)


def text(fit: Fit, width: int = 100, *, colour: bool = False, every_node: bool = False) -> str:
    return "\n".join(FitText(Paragraphs(width, colour), every_node=every_node).lines(fit))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("colour", [False, True])
def test_any_width(width: int, *, colour: bool) -> None:
    """No line is wider than the terminal, apart from codes for colour."""
    group = attrs.evolve(ANSWER, pods_per_replica=2, fitting=1)
    lines = text(group, width, colour=colour).replace("\033[33m", "").replace("\033[1m", "").replace("\033[0m", "")
    assert max(map(len, lines.split("\n"))) <= min(width, 120)
    assert "\033" not in lines


def test_hostile_strings_are_visible() -> None:
    """Names and messages are a cluster's users'."""
    evil = "\033[2J\r\n\u202e"
    placed = (PlannedPod(1, evil, evil, evil, (1,), "core"),)
    limit = Limit(evil, evil, 1, evil)
    shown = text(Fit(evil, evil, 4, 1, placed=placed, limit=limit, notes=(evil,)))
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("fit", "want"),
    [
        (Fit(asked=1, fitting=1, asks="1 Neuron core"), "1 of 1 replica fits now (1 Neuron core each)."),
        (Fit(asked=4, fitting=4), "4 of 4 replicas fit now."),
        (Fit(asked=4), "0 of 4 replicas fit now."),
        (Fit(fitting=7, total=7, limit=LIMIT), "7 replicas fit now."),
        (Fit(limit=LIMIT), "0 replicas fit now."),
        (Fit(fitting=1000, total=1000), "1000 replicas or more fit now."),
        (Fit(name="JobSet j", asked=2, fitting=1, pods_per_replica=8), "1 of 2 groups of JobSet j fits now."),
    ],
)
def test_headlines(fit: Fit, want: str) -> None:
    """One sentence for each case."""
    assert headline(fit) == want


@pytest.mark.parametrize(
    ("fit", "want"),
    [
        (Fit(asked=3, fitting=3, total=9), "There is room for at least 6 more."),
        (Fit(asked=3, never=True), "Never on these nodes: it would not fit if all other pods were gone, either."),
        (Fit(asked=3, fitting=3, total=9, limit=LIMIT), "There is room for 6 more."),
        (
            attrs.evolve(ANSWER, fitting=0, total=0, pods_per_replica=4),
            "Of the next group 3 of 4 pods would fit: they are of no use alone.",
        ),
    ],
)
def test_what_else_there_is_to_say(fit: Fit, want: str) -> None:
    """Room for more, and a group that is not complete."""
    assert want in text(fit).splitlines()


def test_many_nodes_are_cut_short() -> None:
    """Twenty are listed; all with `-o wide`."""
    placed = tuple(PlannedPod(i, f"n{i}", ids=(i,), unit="core") for i in range(1, 24))
    fit = Fit(asked=23, fitting=23, total=23, placed=placed)
    assert "and 3 more nodes (-o wide lists all)" in text(fit)
    assert "n23" not in text(fit)
    assert "n23" in text(fit, every_node=True)


@pytest.mark.parametrize("width", [80, 100])
def test_the_columns_of_many_nodes_are_aligned(width: int) -> None:
    """Whatever the names are; nodes that get the same share a line."""
    names = [f"ip-10-0-{i % 3 * 99}-{i}.us-west-2.compute.internal" for i in range(30)]
    placed = [PlannedPod(i, name, "trn1.32xlarge", ids=(i % 16,), unit="device") for i, name in enumerate(names)]
    shown = text(Fit(asked=30, fitting=30, total=30, placed=tuple(placed)), width).split("\n")[3:]
    assert len({line.index("trn1.32xlarge  1 pod: device ") for line in shown[:20]}) == 1
    assert shown[20] == "  and 10 more nodes (-o wide lists all)"
    alike = tuple(attrs.evolve(pod, ids=(0,)) for pod in placed)
    (one,) = text(Fit(asked=30, fitting=30, total=30, placed=alike), width).split("\n")[3:]
    assert one.split() == [*one.split()[:1], "and", "29", "more", "trn1.32xlarge", "1", "pod:", "device", "0"]
