"""The page has the figures, and its plots are well-formed."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from benchmarks import report
from tests.benchmarks.runs import run


def test_a_page_and_plots_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run is listed, an incomplete one is marked, and ratios are of medians."""
    records = [
        run(rate=1_000),
        run(number=1, rate=800, bound=2_400, bind_seconds=3.0),
        run("kube-scheduler", rate=300, start_seconds=0.84),
        run(workload="paced", latencies=(0.001, 0.003)),
    ]
    report.show(records, tmp_path)
    page = (tmp_path / "throughput.md").read_text()
    assert page == capsys.readouterr().out
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines()]
    assert ["kube-scheduler", "300", "3.00x", "273", "0.8", "0.50", "1.00", "100", "300"] in rows
    assert ["ours", "1.0", "3.0", "0.50"] in rows
    assert any(row[0] == "ours" and row[-1] == "1000 800!" for row in rows)
    for plot in ("throughput-workloads.svg", "throughput-nodes.svg", "throughput-cpu.svg"):
        assert ET.parse(tmp_path / plot).getroot().tag.endswith("svg")
