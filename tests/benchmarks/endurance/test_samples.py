"""The lines of a log are counted while it grows."""

from pathlib import Path

from benchmarks.endurance.samples import LogCount


def test_complete_lines_are_counted_once(tmp_path: Path) -> None:
    """Warnings and errors also by themselves; the beginning of a line counts when the rest has come."""
    log = tmp_path / "log"
    log.write_text("I one\nW two\nE thr")
    count = LogCount(log)
    count.update()
    assert (count.lines, count.loud) == (2, 1)
    with log.open("a") as file:
        file.write("ee\nI four\n")
    for _ in range(2):
        count.update()
    assert (count.lines, count.loud) == (4, 2)
