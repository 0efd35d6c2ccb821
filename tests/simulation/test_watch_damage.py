"""What happens to the lines of a watch can be seen by a client, or does no harm."""

import json
from random import Random
from typing import Any

import pytest

from tests.simulation.watch_damage import ENDLESS, GARBLED, IDENTITY, LINES, VERSION, damaged
from tests.support.scripted_server import event
from tests.support.wire_objects import pod

LINE = event("ADDED", pod("p", metadata={"resourceVersion": "123"})).replace(b'": ', b'":')
NEXT = event("ADDED", pod("q", metadata={"resourceVersion": "124"})).replace(b'": ', b'":')


def readable(text: bytes) -> list[Any]:
    """Return the lines that are one JSON object in UTF-8."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line.decode()))
        except ValueError:
            continue
    return found


@pytest.mark.parametrize("kind", sorted(LINES.keys() - {ENDLESS, VERSION, IDENTITY}))
def test_no_line_becomes_another_event(kind: str) -> None:
    """Whatever the dice: what can still be read was sent like that, or is an error."""
    for seed in range(200):
        events = readable(damaged(kind, LINE, Random(seed)) + NEXT)
        assert all(event in [*readable(LINE), *readable(NEXT)] or event["type"] == "ERROR" for event in events)


def test_bytes_that_only_a_strict_client_sees() -> None:
    """Half of the garbled names of fields have no byte that JSON forbids."""
    lines = [damaged(GARBLED, LINE, Random(seed)) for seed in range(200)]
    assert any(b"\xff" in line and b"\x00" not in line for line in lines)
    assert any(b"\x00" in line for line in lines)


def test_a_wrong_version_is_no_number_or_another_one() -> None:
    """Each of four kinds occurs, and nothing else changes."""
    versions = set()
    for seed in range(200):
        (found,) = readable(damaged(VERSION, LINE, Random(seed)))
        version = found["object"]["metadata"]["resourceVersion"]
        versions.add("earlier" if version.isdigit() and int(version) < 123 else version)
        assert json.dumps(found).replace('": ', '":').replace(f'"{version}"', '"123"', 1).encode() + b"\n" == LINE
    assert versions == {"earlier", "1237", "123x", ""}


def test_an_identity_is_empty() -> None:
    """The type of the event, the name or the uid."""
    texts = {damaged(IDENTITY, LINE, Random(seed)) for seed in range(50)}
    assert texts == {
        LINE.replace(b'"ADDED"', b'""'),
        LINE.replace(b'"name":"p"', b'"name":""', 1),
        LINE.replace(b'"uid":"uid-p"', b'"uid":""', 1),
    }
