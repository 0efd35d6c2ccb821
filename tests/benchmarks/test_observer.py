"""The observer counts frames of a protobuf watch, however the bytes arrive."""

import pytest

from benchmarks.contest.observer import Observer, version_of
from tests.control_plane.server import ControlPlane


def frame(kind: bytes, name: bytes) -> bytes:
    """Return an event as the API server frames it: a length, the kind as field 1, then the object."""
    event = b"\n" + bytes([len(kind)]) + kind + b"\x12\x10k8s\x00\n\x0c" + name + b"\x1a\x00"
    return len(event).to_bytes(4) + event


@pytest.fixture
def observer(tmp_path: object) -> Observer:
    """Return an observer without any event."""
    return Observer(plane=ControlPlane(tmp_path), on_first=lambda: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_binds_are_counted_once_in_pieces_of_any_size(observer: Observer, size: int) -> None:
    """Only pods that are new among the bound ones count, and each once."""
    events = [(b"ADDED", b"run-000001"), (b"MODIFIED", b"run-000002"), (b"ADDED", b"run-000003")]
    events += [(b"DELETED", b"run-000001"), (b"ADDED", b"run-000003")]
    stream = b"".join(frame(*event) for event in events)
    for at in range(0, len(stream), size):
        observer._take(stream[at : at + size], 5.0)
    assert observer.bound == {"run-000001": 5.0, "run-000003": 5.0}


def test_a_watch_goes_on_at_the_version_of_the_last_event() -> None:
    """The field after it begins with the byte of the digit 8, which is no part of it."""
    uid = b"7bd0ff6e-0000-4000-8000-000000000000"
    assert version_of(b"\n\x05ADDED run-000001\x22\x00\x2a\x24" + uid + b"\x32\x0412348\x00B\x00") == "1234"
    assert version_of(b"") == ""
