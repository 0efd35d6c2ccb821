"""A decision that is another one now is named with the step that decided otherwise."""

from collections.abc import Sequence

import pytest

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.journal.changes import Assume, Change, PutNode, PutPod
from neuron_scheduler.journal.records import Decided, Lost, Record, Started
from neuron_scheduler.journal.replay import Replayed, Skipped, replay
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from tests.support.builders import node, pod

PROFILE = default_profile("my-scheduler")
PLAIN = default_profile("my-scheduler", preferences=[])
FLEET: Sequence[Change] = (
    PutNode(node("a", "trn1.32xlarge")),
    PutNode(node("b", "trn1.32xlarge")),
    PutPod(pod("x", devices=1, on="b", ids=[0])),
    PutNode(node("c", unschedulable=True)),
)
P = pod("p", devices=1, scheduler_name="my-scheduler")


def why(decided: Decided, profile: str = "my-scheduler", *, plain: bool = False) -> str:
    """Return why a decision is another one now; empty if it is not."""
    records: list[Record] = [Started(0.0, "1", ()), *FLEET, decided]
    (result,) = replay(records, lambda _, name: (PLAIN if plain else PROFILE) if name == profile else None)
    assert isinstance(result, Replayed)
    return "" if result.difference is None else result.difference.why


def test_the_same() -> None:
    """The small pod goes beside the other one."""
    assert why(Decided(1.0, P, "b", (1,))) == ""


@pytest.mark.parametrize(
    ("decided", "expected"),
    [
        (Decided(1.0, P, "a", (0,)), "SmallestBlock prefers b to a"),
        (Decided(1.0, P, "b", (2,)), "another block of the same node is chosen now"),
        (Decided(1.0, P, "gone", (0,)), "gone is not there"),
        (Decided(1.0, P, "c", (0,)), "c is refused by NodeUnschedulable: node(s) were unschedulable"),
        (Decided(1.0, P, nodes=3, reasons=(("Too many pods", 3),)), "b takes the pod now"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_why(decided: Decided, expected: str) -> None:
    """One sentence names the step."""
    assert why(decided) == expected


def test_another_profile() -> None:
    """Without preferences the oldest node is chosen."""
    assert why(Decided(1.0, P, "b", (1,)), plain=True) == "a is older, and equal in all preferences"


def test_other_reasons() -> None:
    """A refusal with other counts is a difference."""
    seven = pod("p", devices=7, scheduler_name="my-scheduler")
    assert why(Decided(1.0, seven, nodes=3, reasons=(("Too many pods", 3),))) == (
        "the nodes are refused for other reasons now"
    )


def test_what_cannot_be_replayed() -> None:
    """Decisions without a profile, and those after a gap, are counted."""
    decided = Decided(1.0, P, "b", (1,))
    records: list[Record] = [Started(0.0, "1", ()), *FLEET, decided, Lost(5), decided, Started(2.0, "1", ()), decided]
    results = list(replay(records, lambda _, name: PROFILE if name == "my-scheduler" else None))
    assert [type(result).__name__ for result in results] == ["Replayed", "Skipped", "Skipped", "Replayed"]
    assert results[1] == Skipped(lines=5)
    (skipped,) = replay([Started(0.0, "1", ()), *FLEET, decided], lambda *_: None)
    assert skipped == Skipped(1, scheduler_name="my-scheduler")


def test_lines_that_do_not_belong_together() -> None:
    """A change that does not fit is an error for people."""
    twice = Assume(pod("y", devices=1, on="a"), CoreMask(3))
    with pytest.raises(ConfigurationError, match=r"the journal does not fit together: .* already placed"):
        list(replay([Started(0.0, "1", ()), *FLEET, twice, twice], lambda *_: PROFILE))
    with pytest.raises(ConfigurationError, match="does not fit together"):
        list(replay([Started(0.0, "1", ()), Assume(pod("y", on="z"), NO_CORES)], lambda *_: PROFILE))
