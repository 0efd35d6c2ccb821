"""
Prometheus's own parser, storage, query engine and rules, as a program (`engine/main.go`) that tests give scrapes to.

Prometheus itself would scrape in real time, and an alert that must last 30 minutes would take as long. The program has
its packages, pinned by `engine/go.mod`, without the server around them; it is compiled once (under a minute) and kept
in the cache folder.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import yaml

from tests.control_plane.build import build_source
from tests.support.kustomize import ROOT

SOURCE: Final = Path(__file__).parent / "engine"
RULES: Final = ROOT / "manifests" / "chart" / "monitoring" / "rules.yaml"
STEP: Final = 30
"""Seconds between two scrapes, as in the PodMonitor, and between two evaluations of the rules."""
TEXT: Final = "text/plain; version=0.0.4"
JOB: Final = "kube-system/neuron-scheduler"


@attrs.frozen
class Scrape:
    """
    What a replica answers from a time on, in seconds.

    Attributes:
        body: of /metrics; empty if the scrape fails.
    """

    body: str
    at: int = 0
    instance: str = "10.0.0.1:10251"
    content_type: str = TEXT


@attrs.frozen
class Query:
    """A query, evaluated at each step from `start` to `end`."""

    expr: str
    start: int
    end: int


@attrs.frozen
class Outcome:
    """The answers to the queries as the program gave them, and the alerts that fire at the end."""

    answers: Sequence[dict[str, Any]]
    alerts: Sequence[dict[str, Any]]

    @property
    def firing(self) -> set[str]:
        return {alert["labels"]["alertname"] for alert in self.alerts}


def evaluated(scrapes: Sequence[Scrape], *, end: int, queries: Sequence[Query] = (), folder: Path) -> Outcome:
    """Scrape and evaluate the rules every `STEP` seconds until `end`, and then the queries; `folder` is for files."""
    rules = folder / "rules.yaml"
    rules.write_text(json.dumps(yaml.safe_load(RULES.read_text())["spec"]))  # what the Prometheus operator mounts
    job = {
        "rules": [str(rules)],
        "step": STEP,
        "end": end,
        "scrapes": [
            {
                "at": scrape.at,
                "labels": {"job": JOB, "instance": scrape.instance},
                "contentType": scrape.content_type,
                "body": scrape.body,
            }
            for scrape in scrapes
        ],
        "queries": [attrs.asdict(query) for query in queries],
    }
    done = subprocess.run([build_source(SOURCE)], input=json.dumps(job), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Outcome(**json.loads(done.stdout))


if __name__ == "__main__":
    sys.stdout.write(f"{'prometheus engine':24}{build_source(SOURCE)}\n")
