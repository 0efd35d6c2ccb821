"""YAML as kubectl reads it; what `capture` refuses of it is tested there."""

import pytest

from neuron_scheduler.kube.objects.yaml_text import json_documents

LAUGHS = b"a0: &a0 x\n" + b"".join(b"a%d: &a%d [*a%d, *a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 60))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"a: 2026-11-22T08:00:00Z", [b'{"a":"2026-11-22T08:00:00Z"}']),
        (b"a: 2026-11-22", [b'{"a":"2026-11-22"}']),
        (b"a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}", [b'{"a":{"b":1},"c":{"b":1},"d":{"b":1,"e":2}}']),
        (b"a: 1\n---\n---\nb: [true, null, 1.5]", [b'{"a":1}', b'{"b":[true,null,1.5]}']),
    ],
)
def test_documents(text: bytes, want: list[bytes]) -> None:
    """Dates are texts and aliases are what they stand for, as for kubectl."""
    assert list(json_documents(text)) == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: !!set {b}", "the tag tag:yaml.org,2002:set in line 1; leave it out"),
        (b"a: &x [*x]", "the alias in line 1 stands for nothing before it"),
        (LAUGHS, "the aliases up to line 19 stand for too much"),
        (b"a: &x " + b"x" * 600_000 + b"\nb: *x\nc: *x", "the aliases up to line 3 stand for too much"),
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
