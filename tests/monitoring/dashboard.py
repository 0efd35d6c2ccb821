"""The panels of the dashboard as they are in the file, with Grafana's variables replaced by what the tests select."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import attrs

from tests.support.kustomize import ROOT

FILE: Final = ROOT / "manifests" / "monitoring" / "dashboard.json"
VARIABLES: Final = {"$job": ".*", "$__rate_interval": "2m"}


@attrs.frozen
class Target:
    """A query of a panel, and the text that names each of its series."""

    expr: str
    legend: str


@attrs.frozen
class Panel:
    """
    A panel.

    Attributes:
        kind: Grafana's name of its sort.
        unit: Grafana's name of the unit of its numbers.
        place: x, y, width and height; the dashboard is 24 wide.
    """

    title: str
    kind: str
    unit: str
    stacked: bool
    place: tuple[int, int, int, int]
    targets: tuple[Target, ...]


@cache
def dashboard() -> dict[str, Any]:
    """Return the file."""
    return dict(json.loads(FILE.read_text()))


def panels() -> Iterator[Panel]:
    """Yield the panels, without the rows between them."""
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        yield Panel(
            title=panel["title"],
            kind=panel["type"],
            unit=defaults["unit"],
            stacked=defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
            place=tuple(panel["gridPos"][key] for key in "xywh"),
            targets=tuple(Target(_filled(target["expr"]), target["legendFormat"]) for target in panel["targets"]),
        )


def _filled(expr: str) -> str:
    for variable, value in VARIABLES.items():
        expr = expr.replace(variable, value)
    return expr


def rows() -> Iterator[tuple[str, int]]:
    """Yield the titles between the panels, and where they are."""
    for panel in dashboard()["panels"]:
        if panel["type"] == "row":
            yield panel["title"], panel["gridPos"]["y"]
