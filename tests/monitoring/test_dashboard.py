"""Every query of the dashboard has an answer, by Prometheus's own engine on what processes answered."""

import json
import re
from typing import Any, Final

import pytest

from tests.monitoring.engine import Query, evaluated
from tests.monitoring.story import Story
from tests.support.kustomize import ROOT

pytestmark = [pytest.mark.control_plane, pytest.mark.timeout(400)]

Panel = dict[str, Any]
DASHBOARD: Final = json.loads((ROOT / "manifests" / "chart" / "monitoring" / "dashboard.json").read_text())
PANELS: Final[dict[str, Panel]] = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
VARIABLES: Final = {"$job": ".*", "$__rate_interval": "2m"}
"""What Grafana would put in their place."""


def query(target: dict[str, str], story: Story) -> Query:
    """Return a panel's query over the whole story."""
    expr = target["expr"]
    for variable, value in VARIABLES.items():
        expr = expr.replace(variable, value)
    return Query(expr, 0, story.end)


@pytest.fixture(scope="module")
def answers(story: Story, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the answers to the queries of each panel."""
    queries = [query(target, story) for panel in PANELS.values() for target in panel["targets"]]
    outcome = evaluated(story.scrapes(), end=story.end, queries=queries, folder=tmp_path_factory.mktemp("engine"))
    found = iter(outcome.answers)
    return {title: [next(found) for _ in panel["targets"]] for title, panel in PANELS.items()}


@pytest.mark.parametrize("panel", PANELS.values(), ids=PANELS)
def test_a_panel_shows_something(panel: Panel, answers: dict[str, list[dict[str, Any]]]) -> None:
    """Each query has series; each selector finds some; each label of the legend is there."""
    for target, answer in zip(panel["targets"], answers[panel["title"]], strict=True):
        assert answer["error"] == ""
        assert [selector["text"] for selector in answer["selectors"] if not selector["series"]] == []
        assert any(series["points"] for series in answer["series"]), target["expr"]
        labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert all(labels == series["labels"].keys() for series in answer["series"]), target["expr"]


def at_the_end(answer: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """Return the last values by the values of the labels."""
    return {
        tuple(value for _, value in sorted(series["labels"].items())): series["points"][-1][1]
        for series in answer["series"]
    }


def test_the_numbers_are_those_of_the_story(answers: dict[str, list[dict[str, Any]]]) -> None:
    """What the standby and a replica without pods say changes none of them."""
    (waiting,) = answers["Waiting pods by cause"]
    assert at_the_end(waiting) == {("capacity",): 2, ("fragmentation",): 1, ("invalid_count",): 1, ("gated",): 1}
    (by_size,) = answers["Waiting pods by size"]
    assert at_the_end(by_size) == {("16", "device"): 2, ("8", "device"): 1, ("7", "device"): 1, ("4", "device"): 1}
    (active,) = answers["Active replicas"]
    assert at_the_end(active) == {(): 1}
    used, free, withheld = (at_the_end(answer)[()] for answer in answers["Devices"])
    assert used + free + withheld == 3 * 16 + 12
    (unknown,) = answers["Unknown holders by node"]
    assert at_the_end(unknown) == {("trn1-b",): 2}


def test_the_dashboard_is_for_every_installation() -> None:
    """The data source is a variable, panels have explanations, and ids and places are unique."""
    assert all(panel["description"] for panel in PANELS.values())
    targets = [target for panel in PANELS.values() for target in panel["targets"]]
    assert {target["datasource"]["uid"] for target in targets} == {"${datasource}"}
    assert all("$job" in target["expr"] for target in targets)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(places)) == len(places)
