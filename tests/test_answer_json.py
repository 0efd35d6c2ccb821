"""An answer survives the way to JSON and back."""

import msgspec
import pytest

from neuron_scheduler.answer_json import from_json, to_json
from neuron_scheduler.explain.answers.explanation import (
    Change,
    ChangeKind,
    Explanation,
    FilterCount,
    LeavingPod,
    NodeGroup,
    PodSummary,
    Verdict,
)

ANSWER = Explanation(
    pod=PodSummary("ml", "train-0", "my-scheduler", 5, 1.5, "8 Neuron devices", "aws.amazon.com/neurondevice", 8),
    verdict=Verdict.WAITS,
    message="0/1 nodes are available: 1 Insufficient aws.amazon.com/neurondevice.",
    filters=(FilterCount("NodeResourcesFit", "Insufficient aws.amazon.com/neurondevice", 1),),
    groups=(NodeGroup(1, ("n1",), "trn1.32xlarge", kept_for=("a/b",)),),
    changes=(Change(ChangeKind.DEPARTURE, "a/b ends.", pods=(LeavingPod("a", "b", budgets=("c",)),)),),
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
