"""The scanner against the decoder, on any JSON, on text that is cut off, and on text that is deep or long."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.kube.objects.json_scanner import (
    ScanError,
    finish,
    finish_with_pauses,
    list_items,
    members,
    strings,
    without,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
SPACED = st.sampled_from([None, 1])


@given(JSON, SPACED, st.booleans())
def test_members_are_what_the_decoder_finds(value: Any, indent: int | None, ascii_only: bool) -> None:
    """Names in their order and whole values, whatever the spelling."""
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    if not isinstance(value, list | dict):
        with pytest.raises(ScanError):
            finish(members(text))
        return
    pairs = [(json.loads(m.name or b"null"), json.loads(text[m.start : m.end])) for m in finish(members(text))]

    assert pairs == (list(value.items()) if isinstance(value, dict) else [(None, item) for item in value])


@given(st.dictionaries(st.sampled_from(["a", "metadata"]), st.dictionaries(st.sampled_from(["b", "x"]), JSON)), SPACED)
def test_without_one_member(value: dict[str, Any], indent: int | None) -> None:
    """It is null, and the rest is unchanged."""
    text = json.dumps(value, indent=indent).encode()
    if "x" in value.get("metadata", {}):
        value["metadata"]["x"] = None

    assert json.loads(finish(without(text, b'"metadata"', b'"x"'))) == value


@given(JSON, SPACED)
def test_items(value: Any, indent: int | None) -> None:
    """They are the texts of the array's elements; anything else is no list."""
    text = json.dumps({"items": value}, indent=indent, ensure_ascii=False).encode(errors="replace")
    found, _ = finish(list_items(text))
    assert (None if found is None else [json.loads(item) for item in found]) == (
        json.loads(text)["items"] if isinstance(value, list) else None
    )


def test_a_list_has_a_kind() -> None:
    """It comes without its quotes, and is empty where there is none."""
    assert finish(list_items(b'{"items": [1, {"a": []}], "kind": "PodList"}')) == ([b"1", b'{"a": []}'], "PodList")
    assert finish(list_items(b'{"items": []}')) == ([], "")
    assert finish(list_items(b'{"kind": "Pod"}')) == (None, "Pod")


@given(st.binary(), st.integers(0, 60))
def test_any_bytes(noise: bytes, cut: int) -> None:
    """Only ScanError is raised, and the first strings of a text that is cut off can be read."""
    whole = b'{"metadata": {"name": "p", "uid": "u", "labels": {"a": "b"}}, "x": "' + noise
    for text in (noise, whole, whole[:cut]):
        for read in (members(text), list_items(text), without(text, b'"metadata"', b'"labels"')):
            with contextlib.suppress(ScanError):
                finish(read)
        finish(strings(text, b'"metadata"'))
    known = finish(strings(whole[:45], b'"metadata"'))

    assert known == {b'"name"': "p", b'"uid"': "u"}


def test_nothing_follows_the_end() -> None:
    """Two objects in one text are not the first of them; blanks are nothing."""
    assert len(finish(members(b' {"a": 1} \n'))) == 1
    for text in (b'{"a": 1}{"a": 2}', b'{"a": 1}\n}'):
        with pytest.raises(ScanError, match="follows the end at byte 8"):
            finish(members(text))


def test_deep_and_cut_off() -> None:
    """A level of the text takes no level of the stack, whether the text has an end or not."""
    deep = b'{"a": ' + b'{"f:b": [' * 100_000
    with pytest.raises(ScanError):
        finish(members(deep))
    (member,) = finish(members(deep + b"]}" * 100_000 + b"}"))

    assert member.name == b'"a"'


async def test_megabytes_are_scanned_in_steps() -> None:
    """Other tasks run in between, whatever the text."""
    text = b'{"a": [' + b",".join([b'{"":{"":[]}}'] * 200_000) + b"]}"
    steps = members(text)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration:
            break
        pauses += 1

    assert pauses >= len(text) // 200_000
    assert len(await finish_with_pauses(members(text))) == 1
