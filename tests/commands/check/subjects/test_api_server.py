"""The supported versions are those that the README and the chart name."""

import re
from pathlib import Path

import attrs
import pytest

from neuron_scheduler.commands.check.subjects.api_server import NEWEST, OLDEST, findings
from tests.support.snapshots import HEALTHY

ROOT = Path(__file__).parents[4]


def test_the_supported_versions_are_the_documented_ones() -> None:
    """Three places say which versions of Kubernetes the scheduler is for."""
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
    assert f"{oldest} to {newest}" in (ROOT / "README.md").read_text()
    chart = (ROOT / "manifests" / "chart" / "Chart.yaml").read_text()
    assert re.findall(r"^kubeVersion: .*?(\d+\.\d+)\.0", chart, re.MULTILINE) == [oldest]


@pytest.mark.parametrize(
    ("version", "code"),
    [
        ("v1.33.0", "version"),
        ("v1.37.2", "version"),
        ("v1.34.7-eks-113cf36", "version"),
        ("v1.37.2+sandbox", "version"),
        ("v1.32.99", "version-too-old"),
        ("v1.9.0", "version-too-old"),
        ("v1.38.0-alpha.1", "version-too-new"),
        ("v2.0.0", "version-too-new"),
        ("main", "version-unknown"),
    ],
)
def test_versions(version: str, code: str) -> None:
    """Numbers are compared, whatever a distribution adds."""
    assert [finding.code for finding in findings(attrs.evolve(HEALTHY, version=version))] == [code]
