"""Each alert fires where it should and nowhere else, by Prometheus's own rules on what processes answered."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from neuron_scheduler.telemetry.state_metrics import State
from tests.monitoring.engine import RULES, STEP, Outcome, Query, Scrape, evaluated
from tests.monitoring.story import Story, counted, lasting
from tests.support.kustomize import ROOT

pytestmark = [
    pytest.mark.control_plane,  # the program is compiled with it
    pytest.mark.timeout(400),  # for the first test, if it has to be compiled
]

HOUR = 3600
ALERTS = {
    rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["spec"]["groups"] for rule in group["rules"]
}
SECOND = "10.0.0.2:10251"


def lasting_hour(body: str) -> list[Scrape]:
    """Return the scrapes of a state that lasts for an hour."""
    return [*lasting(body, 0, HOUR)]


def after(before: str, then: str) -> list[Scrape]:
    """Return the scrapes of a change after 50 minutes."""
    return [Scrape(before), Scrape(then, at=3000)]


SCENES: dict[str, tuple[Callable[[Story], list[Scrape]], set[str]]] = {
    "nothing is wrong": (lambda story: [Scrape(story.busy), Scrape(story.standby, instance=SECOND)], set()),
    "pods wait": (lambda story: lasting_hour(story.waiting), {"NeuronPodsWaitLong"}),
    "a binding is in doubt": (
        lambda story: lasting_hour(story.in_doubt),
        {"NeuronPodsWaitLong", "NeuronBindingsInDoubt"},
    ),
    "pods of others": (
        lambda story: after(story.in_doubt, story.wrong),
        {"NeuronCoresDoubleBooked", "NeuronSchedulerSkipsObjects", "NeuronBindingsInDoubt"},
    ),
    "pods of others, for long": (
        lambda story: [Scrape(story.wrong)],
        {"NeuronCoresDoubleBooked", "NeuronUnknownHolders", "NeuronBindingsInDoubt", "NeuronSchedulerSkipsObjects"},
    ),
    "only a standby": (lambda story: [Scrape(story.standby)], {"NeuronSchedulerHasNoLeader"}),
    "no target": (lambda _: [], {"NeuronSchedulerHasNoLeader"}),
    "no target answers": (lambda story: after(story.busy, ""), {"NeuronSchedulerHasNoLeader"}),
    "two leaders": (
        lambda story: [Scrape(story.busy), Scrape(story.second_leader, instance=SECOND)],
        {"NeuronSchedulerHasTwoLeaders"},
    ),
    "no list": (
        lambda story: [Scrape(story.busy), Scrape(story.unready, instance=SECOND)],
        {"NeuronSchedulerNotReady"},
    ),
    "a stale watch": (
        lambda _: [Scrape(counted(state=State(leader=True, watch_stale={"pods": 1})))],
        {"NeuronSchedulerWatchIsStale"},
    ),
    "a defect": (
        lambda _: after(counted(), counted(lambda metrics: metrics.count_unexpected_error("scheduling"))),
        {"NeuronSchedulerHasUnexpectedErrors"},
    ),
    "a defect in a handler": (
        lambda _: after(counted(), counted(lambda metrics: metrics.count_unhandled("pods"))),
        {"NeuronSchedulerSkipsEvents"},
    ),
    "lost log lines": (
        lambda _: after(counted(), counted(state=State(leader=True, log_lines_dropped=3))),
        {"NeuronSchedulerDropsLogLines"},
    ),
    "a rejected pod": (
        lambda _: after(counted(), counted(lambda metrics: metrics.count_rejection("UnexpectedAdmissionError"))),
        {"NeuronNodesRejectPods"},
    ),
    "machines that cannot be asked for": (
        lambda _: [Scrape(counted(state=State(leader=True, capacity_requests={"refused": 2})))],
        {"NeuronCapacityRequestsRefused"},
    ),
    "machines that are asked for": (
        lambda _: after(
            counted(state=State(leader=True, capacity_requests={"open": 2, "refused": 0})),
            counted(lambda metrics: metrics.count_capacity_request("served")),
        ),
        set(),
    ),
    "a machine that does not come": (
        lambda _: after(counted(), counted(lambda metrics: metrics.count_capacity_request("given_up"))),
        {"NeuronMachinesDoNotCome"},
    ),
    "a stale fence": (
        lambda _: after(counted(), counted(lambda metrics: metrics.count_stale_fence())),
        {"NeuronSchedulerFenceIsStale"},
    ),
}


@pytest.mark.parametrize("name", SCENES)
def test_the_alerts_of_a_scene(name: str, story: Story, tmp_path: Path) -> None:
    """Exactly these fire, and their texts are whole sentences about something."""
    scrapes, alerts = SCENES[name]
    outcome = evaluated(scrapes(story), end=HOUR - STEP, folder=tmp_path)
    assert outcome.firing == alerts
    for alert in outcome.alerts:
        for text in (alert["annotations"]["summary"], alert["annotations"]["description"]):
            assert not re.search(r"\{\{|no value|  |  ?for ,| in $| of $|^ ", text), text
        assert "%" not in alert["annotations"]["description"]


def test_every_alert_has_a_scene() -> None:
    """No alert is without a case in which it fires."""
    assert set().union(*(alerts for _, alerts in SCENES.values())) == ALERTS.keys()


def test_an_alert_ends_with_its_cause(tmp_path: Path) -> None:
    """What has happened once is not told for ever."""
    first = counted(lambda metrics: metrics.count_unexpected_error("scheduling"))
    scrapes = [Scrape(counted()), Scrape(first, at=300)]
    assert evaluated(scrapes, end=600, folder=tmp_path).firing == {"NeuronSchedulerHasUnexpectedErrors"}
    assert evaluated(scrapes, end=2 * HOUR, folder=tmp_path).firing == set()


def test_a_pod_that_waits_for_ten_minutes_is_no_alert(story: Story, tmp_path: Path) -> None:
    """Pods may wait."""
    assert evaluated([*lasting(story.waiting, 0, 600)], end=570, folder=tmp_path).firing == set()


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_selects_what_processes_answer(alert: str, story: Story, tmp_path: Path) -> None:
    """Each selector of its expression finds series in the story: names and labels are those of real answers."""
    outcome: Outcome = evaluated(
        story.scrapes(), end=story.end, queries=[Query(ALERTS[alert]["expr"], 0, story.end)], folder=tmp_path
    )
    (answer,) = outcome.answers
    assert answer["error"] == ""
    assert answer["selectors"]
    assert [selector["text"] for selector in answer["selectors"] if not selector["series"]] == []


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_to_do(alert: str) -> None:
    """It has a severity that routes it, a summary, a description, and a section of the runbook."""
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    sections = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", (ROOT / page).read_text(), re.MULTILINE))
    by_anchor = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-"): text for title, text in sections.items()}
    assert page == "docs/runbook.md"
    assert f"`{alert}`" in by_anchor[anchor]
    assert "**Look at**" in by_anchor[anchor]
    assert "**Do**" in by_anchor[anchor]
