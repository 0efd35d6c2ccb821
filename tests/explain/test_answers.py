"""An answer survives the way to JSON and back."""

import msgspec
import pytest

from neuron_scheduler.explain.answers import (
    ChangeKind,
    Explanation,
    Fleet,
    Holder,
    LeavingPod,
    MachinePicture,
    NodeGroup,
    PodSummary,
    SuggestedChange,
    TypeSummary,
    Verdict,
    from_json,
    to_json,
)

ANSWER = Explanation(
    pod=PodSummary("ml", "train-0", "my-scheduler", 5, 1.5, "8 Neuron devices"),
    verdict=Verdict.WAITS,
    message="0/1 nodes are available: 1 Insufficient aws.amazon.com/neurondevice.",
    groups=(NodeGroup(1, ("n1",), "trn1.32xlarge", kept_for=("a/b",)),),
    changes=(SuggestedChange(ChangeKind.DEPARTURE, "a/b ends.", pods=(LeavingPod("a", "b", budgets=("c",)),)),),
    ids=(0, 1),
)


def test_there_and_back() -> None:
    """Names are in camel case, and the values are the same afterwards."""
    value = to_json(ANSWER)
    assert value["pod"]["schedulerName"] == "my-scheduler"
    assert value["groups"][0]["keptFor"] == ["a/b"]
    assert from_json(msgspec.json.decode(msgspec.json.encode(value)), Explanation) == ANSWER


def test_another_version_and_another_thing() -> None:
    """A newer field is ignored; what is no answer is refused."""
    assert from_json(to_json(ANSWER) | {"newField": {"aB": 1}}, Explanation) == ANSWER
    with pytest.raises(msgspec.ValidationError):
        from_json({"kind": "Status"}, Explanation)


def test_the_fleet_there_and_back() -> None:
    """Runs of cores and enums survive, too."""
    holder = Holder("ml", "train-0", ((0, 7), (10, 11)))
    machine = MachinePicture("n1", "trn1.32xlarge", "torus", 16, 2, ("device", "core"), "h" * 8 + "f" * 24, (holder,))
    answer = Fleet((machine,), (TypeSummary("trn1.32xlarge", 1, 16, 12, 4, 0, 8),), ("One sentence.",))
    assert from_json(msgspec.json.decode(msgspec.json.encode(to_json(answer))), Fleet) == answer
