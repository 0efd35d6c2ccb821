"""YAML that may come from anywhere becomes JSON, or an error of one sentence."""

import pytest

from neuron_scheduler.capture import yaml_text
from neuron_scheduler.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"a: {1: 2}\n---\nb: x\n", [b'{"a":{"1":2}}', b'{"b":"x"}']),
        (b"---\n---\n", []),
        (b"a: 2026-11-22T08:00:00Z", [b'{"a":"2026-11-22T08:00:00Z"}']),
        (b"- [a]", [b'[["a"]]']),
    ],
)
def test_documents(text: bytes, want: list[bytes]) -> None:
    """Each is one JSON text; empty ones are left out."""
    assert list(yaml_text.documents("f", text)) == want


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: &x [1]\nb: [*x, *x]", "f is neither JSON nor YAML of objects: an alias in line 2"),
        (b"[" * 100_000, "more than 200 levels in line 1"),
        (b"a:\n" + b"".join(b" " * depth + b"- \n" for depth in range(1, 500)), "more than 200 levels in line 201"),
        (b"a: !!python/object:os.system x", "the tag tag:yaml.org,2002:python"),
        (b"? [a]\n: b", "found unhashable key"),
        (b"a: \xff", "f is neither JSON nor YAML of objects"),
        (b"a: !!int x", "the type of its tag|invalid literal"),
    ],
)
def test_what_is_refused(text: bytes, says: str) -> None:
    """One sentence names the file, and the line where there is one."""
    with pytest.raises(ConfigurationError, match=says):
        list(yaml_text.documents("f", text))


def test_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML is slow, so it has a limit of its own."""
    monkeypatch.setattr(yaml_text, "MOST_BYTES", 3)
    with pytest.raises(ConfigurationError, match="write it with `-o json`"):
        list(yaml_text.documents("f", b"a: b"))
