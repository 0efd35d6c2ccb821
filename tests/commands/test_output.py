"""Every form of an answer: read back it is the same, and nothing in it controls a terminal."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
import yaml
from hypothesis import given

from neuron_scheduler.commands import output
from neuron_scheduler.explain.answers import Explanation, PodSummary, Verdict, from_json

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 50), 1 << 50) | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_json_and_yaml_are_read_back(value: Any) -> None:
    """Both documents are the value, in printable characters and ends of lines."""
    in_json, in_yaml = output.document(value, "json"), output.document(value, "yaml")
    assert json.loads(in_json) == value
    assert yaml.safe_load(in_yaml) == value
    for text in (in_json, in_yaml):
        assert [c for c in text if not (c.isprintable() or c == "\n")] == []


@pytest.mark.parametrize("form", output.DOCUMENTS)
def test_an_answer(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the JSON form of answers, so it can be read back."""
    answer = Explanation(PodSummary("ml", "a\x1b[2J\u202e"), Verdict.WAITS, "0/1 nodes are available.")
    output.write(answer, form, ())
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert from_json(yaml.safe_load(text), Explanation) == answer


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(-1.5, "0s"), (59.9, "59s"), (90, "1m30s"), (3_600, "1h"), (11_520, "3h12m"), (40 * 86_400 + 3_660, "40d1h")],
)
def test_ages(seconds: float, want: str) -> None:
    """Two units are enough; a clock that is late makes no age below zero."""
    assert output.age(seconds) == want


def test_replicas_are_told_apart_by_the_ends_of_their_names() -> None:
    """A long name is cut before its last characters."""
    names = [output.cut(f"research/a-long-training-job-worker-{number}", 23, 8) for number in (0, 1)]
    assert names == ["research/a-lo..worker-0", "research/a-lo..worker-1"]
    assert output.cut("research/a-long-training-job-worker-0", 23) == "research/a-long-train.."
    assert output.cut("research/a", 23, 8) == "research/a"
