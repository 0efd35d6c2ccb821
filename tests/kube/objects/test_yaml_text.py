"""YAML as kubectl reads it; what `capture` refuses of it is tested there."""

import pytest

from neuron_scheduler.kube.objects.yaml_text import json_documents


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"a: 2026-11-22T08:00:00Z", [b'{"a":"2026-11-22T08:00:00Z"}']),
        (b"a: 2026-11-22", [b'{"a":"2026-11-22"}']),
        (b"a: 1\n---\n---\nb: [true, null, 1.5]", [b'{"a":1}', b'{"b":[true,null,1.5]}']),
    ],
)
def test_documents(text: bytes, want: list[bytes]) -> None:
    """Dates are texts, as for kubectl."""
    assert list(json_documents(text)) == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: !!set {b}", "the tag tag:yaml.org,2002:set in line 1; leave it out"),
        (b"a: &x [1]\nb: *x", "an alias in line 2; write the value out"),
        (b"\n" + b"[" * 201, "more than 200 levels in line 2"),
        (b"[" * 100_000, "more than 200 levels in line 1"),
        (b"a: [", "no YAML in line 2"),
        (b"\xff", "no YAML"),
        (b"a: !!bool x", "a value does not have the type of its tag"),
        (b"? 1.5\n: a\n? true\n: b", "Only dicts with str-like"),
    ],
)
def test_refused(text: bytes, says: str) -> None:
    """One sentence."""
    with pytest.raises(ValueError, match=says):
        list(json_documents(text))
