"""YAML as kubectl reads it; what `capture` refuses of it is tested there."""

from typing import Any

import pytest

from neuron_scheduler.kube.objects.yaml_text import check_events, composed, line_of, loaded


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"a: 2026-11-22T08:00:00Z", [{"a": "2026-11-22T08:00:00Z"}]),
        (b"a: 2026-11-22", [{"a": "2026-11-22"}]),
        (b"a: 1\n---\n---\nb: [true, null, 1.5]", [{"a": 1}, {"b": [True, None, 1.5]}]),
        (b"a: &x [1]\nb: *x", [{"a": [1], "b": [1]}]),
    ],
)
def test_documents(text: bytes, want: list[Any]) -> None:
    """Dates are texts, as for kubectl."""
    check_events(text, deepest=9, aliases=True)
    assert list(loaded(text)) == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: !!set {b}", "the tag tag:yaml.org,2002:set in line 1; leave it out"),
        (b"a: &x [1]\nb: *x", "an alias in line 2; write the value out"),
        (b"\n[[[]]]", "more than 2 levels in line 2"),
        (b"[" * 100_000, "more than 2 levels in line 1"),
        (b"a: [", "no YAML in line 2"),
        (b"\xff", "no YAML"),
    ],
)
def test_refused(text: bytes, says: str) -> None:
    """One sentence, before anything is loaded."""
    with pytest.raises(ValueError, match=says):
        check_events(text, deepest=2, aliases=False)


def test_values_that_are_not_of_their_type() -> None:
    """They are found when they are loaded."""
    with pytest.raises(ValueError, match="a value does not have the type of its tag"):
        list(loaded(b"a: !!bool x"))


def test_lines() -> None:
    """A node knows where it begins."""
    (node,) = composed(b"\n\na: 1")
    assert line_of(node) == 3
