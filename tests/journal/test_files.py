"""Files are replaced when they are full, and a bounded number is kept."""

import os
import stat
from pathlib import Path

import pytest

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.journal.files import RotatedFile, Stdout, output_to


def test_rotation(tmp_path: Path) -> None:
    """The newest file has the name, the older ones numbers; more than that are deleted. Only the owner may read."""
    output = RotatedFile(tmp_path / "d.jsonl", most_bytes=10, keep=3)
    for number in range(5):
        output.begin()
        output.begun()
        assert not output.full
        output.write(b"%d23456789\n" % number)
        assert output.full
    output.close()
    contents = {path.name: path.read_bytes()[:1] for path in tmp_path.iterdir()}
    assert contents == {"d.jsonl": b"4", "d.jsonl.1": b"3", "d.jsonl.2": b"2"}
    assert stat.S_IMODE((tmp_path / "d.jsonl").stat().st_mode) == 0o600


def test_a_file_of_an_earlier_process_is_kept(tmp_path: Path) -> None:
    """A restart begins a new file."""
    (tmp_path / "d.jsonl").write_bytes(b"before\n")
    output = RotatedFile(tmp_path / "d.jsonl", most_bytes=10, keep=2)
    output.begin()
    output.begun()
    output.write(b"now\n")
    output.close()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "d.jsonl": b"now\n",
        "d.jsonl.1": b"before\n",
    }


def test_restarts_on_a_full_disk_push_out_no_file(tmp_path: Path) -> None:
    """Each process knows the file without its beginning for what it is: only the oldest file makes room for it."""
    for name, content in (("d.jsonl", b"3"), ("d.jsonl.1", b"2"), ("d.jsonl.2", b"1")):
        (tmp_path / name).write_bytes(content)
    for _ in range(4):
        output = RotatedFile(tmp_path / "d.jsonl", most_bytes=10, keep=3)
        for _ in range(2):
            output.begin()
            output.write(b"half of a beginn")
        output.close()
        assert {path.name: path.read_bytes()[:1] for path in tmp_path.iterdir()} == {
            ".d.jsonl.next": b"h",
            "d.jsonl.1": b"3",
            "d.jsonl.2": b"2",
        }
    output.begin()
    output.begun()
    output.write(b"whole\n")
    output.close()
    assert {path.name: path.read_bytes()[:1] for path in tmp_path.iterdir()} == {
        "d.jsonl": b"w",
        "d.jsonl.1": b"3",
        "d.jsonl.2": b"2",
    }


def test_tries_that_fail_push_out_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: neither files without their beginning nor files that cannot be made take the place of whole ones."""
    output = RotatedFile(tmp_path / "d.jsonl", most_bytes=10, keep=3)
    for number in range(3):
        output.begin()
        output.write(b"%d\n" % number)
        output.begun()
    for _ in range(4):
        output.begin()
        output.write(b"half of a beginn")
    assert {path.name: path.read_bytes()[:1] for path in tmp_path.iterdir()} == {
        ".d.jsonl.next": b"h",
        "d.jsonl.1": b"2",
        "d.jsonl.2": b"1",
    }
    output.begun()
    with monkeypatch.context() as full:
        full.setattr(os, "open", no_space)
        for _ in range(4):
            with pytest.raises(OSError, match="No space"):
                output.begin()
    output.begin()
    output.begun()
    output.close()
    assert {path.name: path.read_bytes()[:1] for path in tmp_path.iterdir()} == {
        "d.jsonl": b"",
        "d.jsonl.1": b"h",
        "d.jsonl.2": b"2",
    }


def no_space(*_arguments: object, **_named: object) -> int:
    """Fail as on a full disk."""
    raise OSError(28, "No space left on device")


def test_a_missing_number_is_filled(tmp_path: Path) -> None:
    """An earlier process has renamed the file, and then could not make the new one: nothing more is renamed."""
    (tmp_path / "d.jsonl.1").write_bytes(b"1")
    output = RotatedFile(tmp_path / "d.jsonl", most_bytes=10, keep=2)
    output.begin()
    output.close()
    assert (tmp_path / "d.jsonl.1").read_bytes() == b"1"


def test_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is there already is put aside; one that somebody makes at the wrong moment is an error."""
    other, path = tmp_path / "other", tmp_path / "d.jsonl"
    other.write_bytes(b"precious\n")
    path.symlink_to(other)
    output = RotatedFile(path, most_bytes=10, keep=1)
    output.begin()
    output.begun()
    output.write(b"line\n")
    assert (path.is_symlink(), path.read_bytes()) == (False, b"line\n")
    unlink = Path.unlink

    def replaced(self: Path, *, missing_ok: bool) -> None:
        unlink(self, missing_ok=missing_ok)
        self.symlink_to(other)

    monkeypatch.setattr(Path, "unlink", replaced)
    with pytest.raises(FileExistsError):
        output.begin()
    assert other.read_bytes() == b"precious\n"


def test_what_is_no_place_for_a_file(tmp_path: Path) -> None:
    """A mistake in the flag is found at the start."""
    for target in (tmp_path, tmp_path / "none" / "d.jsonl"):
        with pytest.raises(ConfigurationError, match="name a file in a folder that exists and can be written"):
            output_to(str(target), most_bytes=1, keep=1)
    assert isinstance(output_to("-", most_bytes=1, keep=1), Stdout)
