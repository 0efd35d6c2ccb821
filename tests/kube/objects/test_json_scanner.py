"""Text that is deep, long or no JSON at all."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, strategies as st

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import decode_at_once, decode_in_steps, shallow

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('a"\\{}[],:é'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a"\\{}[],:é'), inner),
    max_leaves=40,
)
FLAT = '{"kind": "Pod", "metadata": {"name": "p", "uid": "u1", "managedFields": []}, "spec": {"nodeName": "n1"}}'
# Deeper than any Python lets the decoder go: 3.11 stops at about a thousand levels, 3.13 at ten thousand.
NESTED = "[" * 200_000 + "]" * 200_000
POD = msgspec.json.Decoder(wire.ReadBackPod)


def is_cut(value: Any, cut: Any, levels: int) -> bool:
    """Return whether one value is the other one with null for what is inside so many levels, or for less of it."""
    if levels == 0 and cut is None:
        return isinstance(value, list | dict) or value is None
    if isinstance(value, dict) and isinstance(cut, dict):
        return [*value] == [*cut] and all(is_cut(value[key], cut[key], max(0, levels - 1)) for key in value)
    if isinstance(value, list) and isinstance(cut, list):
        return len(value) == len(cut) and all(map(is_cut, value, cut, [max(0, levels - 1)] * len(value)))
    return bool(value == cut)


def depth(value: Any) -> int:
    """Return how many levels of objects and arrays there are, without empty ones."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(depth, inner)) if inner else 0


@given(JSON, st.integers(0, 5), st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
@example(value={"": []}, most=0, separators=(",", ":"), ascii_only=False)
def test_only_what_is_deep_is_cut_out(value: Any, most: int, separators: tuple[str, str], ascii_only: bool) -> None:
    """The rest is as it was; at most one level too many is left, where it is flat."""
    text = json.dumps(value, separators=separators, ensure_ascii=ascii_only).encode()
    cut = json.loads(b"".join(shallow(text, most)))

    assert is_cut(value, cut, most)
    assert depth(cut) <= most + 1


@given(st.binary() | st.binary().map(lambda noise: b'{"a": [{' + noise))
def test_any_bytes(noise: bytes) -> None:
    """Nothing is raised."""
    assert isinstance(b"".join(shallow(noise, 1)), bytes)


@pytest.mark.parametrize("at", ['"managedFields": []', '"uid": "u1"'], ids=["managedFields", "elsewhere"])
async def test_deep_fields_change_nothing(at: str) -> None:
    """A pod is read back as without them, and so is any other object."""
    deep = FLAT.replace(at, f'"x": {NESTED}, {at}')
    assert await decode_in_steps(deep.encode(), POD) == await decode_in_steps(FLAT.encode(), POD)
    uid = msgspec.json.Decoder(wire.PartialObject)
    assert await decode_in_steps(deep.encode(), uid) == await decode_in_steps(FLAT.encode(), uid)


@pytest.mark.parametrize(
    "text",
    [f'{{"metadata": {{"managedFields": {NESTED}', "<html/>", '{"kind": "Pod"}'],
    ids=["cut off", "a page", "no pod"],
)
async def test_what_is_no_pod(text: str) -> None:
    """It raises an error that its callers expect."""
    with pytest.raises(ValueError, match=r"JSON|missing|truncated"):
        await decode_in_steps(text.encode(), POD)


HALVES = [r"\ud800", r"\uDFFF", r"\ud800\ud800", r"\udc00\ud800 ", r"\\\ud9ab", r"\"\ud800\""]


@pytest.mark.parametrize("half", HALVES)
async def test_half_a_character_changes_nothing(half: str) -> None:
    """Go accepts it, and users may write it where we do not look, such as in the `managedFields` of a template."""
    odd = FLAT.replace('"managedFields": []', f'"managedFields": [{{"{half}": ["{half}"]}}]')
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(odd, type=wire.PartialObject)
    assert await decode_in_steps(odd.encode(), POD) == await decode_in_steps(FLAT.encode(), POD)


@given(st.text(), st.sampled_from(HALVES), st.text())
def test_only_escapes_are_replaced(before: str, half: str, after: str) -> None:
    """What looks like one after a backslash is none."""
    texts = (json.dumps(part, ensure_ascii=False) for part in (before + chr(92), chr(92) + "ud800" + after))
    text = f"[{', '.join(texts)}".encode(errors="replace")
    read = decode_at_once(text + f', "{half}"]'.encode(), msgspec.json.Decoder())

    assert read[:2] == json.loads(text + b"]")
    assert "\ufffd" in read[2]


def test_megabytes_are_read_in_steps() -> None:
    """Other tasks run in between."""
    text = b'{"a": [' + b",".join([b'{"":{"":[]}}'] * 200_000) + b"]}"
    pauses = sum(not part for part in shallow(text))

    assert pauses >= len(text) // 200_000
