"""The command runs, prints a table and records its figures."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import placement


def test_the_command_prints_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row for each contender with the mean over the seeds, a line of JSON for each run, a picture with that mean."""
    record = tmp_path / "placement.jsonl"
    flags = f"--scenarios torus --loads 0.9 --contenders ours pooled --seeds 1 2 --pods 100 --cpu 0.5 --record {record}"
    monkeypatch.setattr("sys.argv", ["placement", *flags.split()])
    placement.main()
    runs = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(run["contender"], run["seed"]) for run in runs] == [("ours", 1), ("ours", 2), ("pooled", 1), ("pooled", 2)]
    assert all(run["load"] == 0.9 and run["cpu"] == 0.5 and run["memory"] == 0 for run in runs)
    assert set(runs[0]["waits"]) == {"0", "1", "4", "8", "16"}
    mean = sum(run["utilisation"] for run in runs[:2]) / 2
    assert f"ours  {mean:>14.1%}".replace(" ", "") in capsys.readouterr().out.replace(" ", "")
    drawn = ET.parse(record.with_suffix(".svg")).getroot()
    texts = ["".join(element.itertext()) for element in drawn.iter() if element.tag.endswith("text")]
    assert "torus, load 0.9" in texts
    assert f"{mean * 100:.0f}" in texts
