"""Lines of a watch that cannot be decoded at once."""

import json

import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.errors import ApiError, OversizedLineError, UnreachableError
from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.watch.watch_line import (
    BOOKMARK,
    DeadEndError,
    decode_beginning,
    decode_line_in_steps,
    may_follow,
)
from tests.support.scripted_server import bookmark, error_event, event
from tests.support.wire_objects import pod


@given(
    st.binary() | st.sampled_from([b'{"type": "ADDED", "object": ', b'{"type": "ERROR", "object": {"code": "']),
    st.binary(),
)
async def test_any_line(line: bytes, rest: bytes) -> None:
    """Only our own errors are raised."""
    try:
        change = await decode_line_in_steps(PODS, line + rest + b"\n")
    except (ApiError, UnreachableError):
        return
    assert change is None or isinstance(change[1], Decoded)


async def test_a_deep_object() -> None:
    """It is read without its managedFields, wherever the type is in the line."""
    deep = '{"f:a": ' * 5000 + "{}" + "}" * 5000
    text = json.dumps(pod("p", metadata={"managedFields": "HERE"})).replace('"HERE"', deep)
    for line in (f'{{"type": "ADDED", "object": {text}}}\n', f'{{"object": {text}, "type": "ADDED"}}\n'):
        assert await decode_line_in_steps(PODS, line.encode()) == ("ADDED", PODS.decode(text.encode()))


async def test_a_bookmark() -> None:
    """It has a version and nothing else."""
    assert await decode_line_in_steps(PODS, bookmark("20")) == (BOOKMARK, Decoded("", "", "20", None))


async def test_errors() -> None:
    """The server asks us to wait, or the watch is over."""
    with pytest.raises(ApiError, match="429"):
        await decode_line_in_steps(PODS, error_event(429))
    with pytest.raises(DeadEndError, match="500"):
        await decode_line_in_steps(PODS, error_event(500))
    with pytest.raises(UnreachableError, match="cut off"):
        await decode_line_in_steps(PODS, event("ADDED", pod())[:-20])


async def test_an_object_that_was_damaged_on_its_way() -> None:
    """The watch is over, and a list shows the object; one with a field of a wrong type is malformed, as ever."""
    line = event("MODIFIED", pod("p", metadata={"labels": {"x": "HERE"}}))
    with pytest.raises(DeadEndError, match="default/p"):
        await decode_line_in_steps(PODS, line.replace(b'"HERE"', b"tru"))
    change = await decode_line_in_steps(PODS, line.replace(b'"HERE"', b"3"))
    assert change is not None
    assert isinstance(change[1].value, Malformed)


async def test_two_objects_in_a_line() -> None:
    """The line break between them was lost; without the list, the second would be, too."""
    line = event("ADDED", pod("p"))[:-1] + event("ADDED", pod("q"))
    assert PODS.decode_change(line) is None
    with pytest.raises(DeadEndError, match="follows the end"):
        await decode_line_in_steps(PODS, line)


async def test_an_object_without_a_name() -> None:
    """Its key would be that of no object."""
    line = event("ADDED", pod("p")).replace(b'"name": "p"', b'"name": ""')
    assert PODS.decode_change(line) is None
    with pytest.raises(DeadEndError, match="not even its name"):
        await decode_line_in_steps(PODS, line)


@pytest.mark.parametrize(
    ("version", "known", "may"),
    [
        ("10", "9", True),
        ("10", "10", True),
        ("9", "10", False),
        ("19", "20", False),
        ("10x", "10", False),
        ("", "10", False),
        ("a", "b", True),
        ("1", "", True),
    ],
)
def test_versions_grow(version: str, known: str, may: bool) -> None:
    """They are compared as numbers; where they are none, nothing is known about their order."""
    assert may_follow(version, known) is may


async def test_an_object_of_which_only_the_beginning_is_known() -> None:
    """Its name is enough to report it as malformed, or to know which object is gone."""
    error = OversizedLineError("too long", event("MODIFIED", pod("p"))[:150])
    kind, decoded = await decode_beginning(PODS, error)

    assert (kind, decoded.value) == ("MODIFIED", Malformed("Pod", "default/p", "OversizedLineError: too long", "uid-p"))
    assert (await decode_beginning(PODS, OversizedLineError("", event("DELETED", pod("p"))[:150])))[0] == "DELETED"
    with pytest.raises(DeadEndError):
        await decode_beginning(PODS, OversizedLineError("", b'{"type": "DELETED", "object": {"kind": "Pod"'))
