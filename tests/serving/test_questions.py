"""What the page shows: all machines, what waits and the last decisions, as each reader may see them."""

import json
from typing import Any

import pytest

from neuron_scheduler.explain.answers import LEFT_OUT
from neuron_scheduler.model.pod import PodCondition
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.serving import questions
from neuron_scheduler.serving.answering import AGE
from neuron_scheduler.serving.names import OTHERS_LEFT_OUT
from neuron_scheduler.serving.sources import MOST_DECISIONS
from tests.serving.conftest import Desk
from tests.support.builders import node, pod

TRN1 = "trn1.32xlarge"


def holders(fleet: Any) -> list[tuple[str, str]]:
    """Return namespace and name of all holders."""
    return [(holder["namespace"], holder["name"]) for machine in fleet["machines"] for holder in machine["holders"]]


def fill(desk: Desk) -> None:
    """Put a pod of `a` and one of `b` on a node."""
    held = [
        pod("p", namespace="a", devices=4, on="n", ids=range(4)),
        pod("q", namespace="b", devices=1, on="n", ids=(9,)),
    ]
    desk.put([node("n", TRN1)], held)


async def test_the_fleet_as_each_reader_sees_it(desk: Desk) -> None:
    """Names of the namespace that is asked about; cores, counts and sums are the same for all."""
    fill(desk)
    all_names, some = await desk.json("/v1/fleet"), await desk.json("/v1/fleet?namespace=a", "jane")
    assert holders(all_names) == [("a", "p"), ("b", "q")]
    assert holders(some) == [("a", "p"), ("", "")]
    assert (all_names["notes"], some["notes"]) == ([], [OTHERS_LEFT_OUT])
    for target in ("/v1/fleet", "/v1/fleet?namespace=b"):
        assert holders(await desk.json(target, "jane")) == [("", ""), ("", "")]
    for answer in (all_names, some):
        assert answer["types"][0] == {
            "instanceType": TRN1, "nodes": 1, "devices": 16, "free": 11, "used": 5, "withheld": 0, "largestBlock": 4,
        }  # fmt: skip
        assert [holder["cores"] for holder in answer["machines"][0]["holders"]] == [[[0, 7]], [[18, 19]]]
    assert (await desk.refusal("/v1/fleet", "joe"))[0] == 403
    assert (await desk.refusal("/v1/fleet", ""))[0] == 401


async def test_the_page_needs_no_token_and_shows_no_name(open_desk: Desk) -> None:
    """Without a token, feeds have no name of a pod; why and fit still need one."""
    fill(open_desk)
    open_desk.put(pods=[pod("waits", namespace="a", devices=8, scheduler_name="my-scheduler")])
    open_desk.ring.note(pod("waits", namespace="a"), FitError(1, pod_reason="secret a/waits"))
    answers = [await open_desk.json(path, "") for path in ("/v1/fleet", "/v1/waiting", "/v1/decisions")]
    assert holders(answers[0]) == [("", ""), ("", "")]
    for text in map(json.dumps, answers):
        assert not [name for name in ('"a"', '"p"', '"q"', "waits", "secret") if name in text]
        assert LEFT_OUT in text
    assert (await open_desk.refusal("/v1/fleet?namespace=a", ""))[0] == 401
    assert {(await open_desk.refusal(path, ""))[0] for path in ("/v1/why?namespace=a&pod=p", "/v1/fit?devices=1")} == {
        401
    }


async def test_what_waits(desk: Desk) -> None:
    """The oldest first, with the message of the condition; a hidden pod keeps its size, age and cause."""
    condition = PodCondition("False", "Unschedulable", "0/1 nodes are available: b/q holds it, and a/p.")
    keywords: dict[str, Any] = {"devices": 8, "scheduler_name": "my-scheduler", "scheduled": condition}
    desk.put(pods=[pod("p", namespace="a", created=5.0, **keywords), pod("q", namespace="b", created=2.0, **keywords)])
    seen = (await desk.json("/v1/waiting?namespace=a", "jane"))["pods"]
    assert [(line["pod"]["namespace"], line["pod"]["name"], line["pod"]["created"]) for line in seen] == [
        ("", "", 2.0),
        ("a", "p", 5.0),
    ]
    assert [line["pod"]["schedulerName"] for line in seen] == ["", "my-scheduler"]  # any text of its creator
    assert {(line["pod"]["asks"], line["cause"]) for line in seen} == {("8 Neuron devices", Cause.UNTRIED)}
    assert [line["message"] for line in seen] == [
        "",
        condition.message,  # whoever may get the pod may read it there
    ]
    everything = await desk.json("/v1/waiting")
    assert (everything["total"], everything["notes"]) == (2, [])
    assert everything["pods"][0]["message"] == condition.message


async def test_pods_of_other_schedulers_are_listed() -> None:
    """A mistyped name is seen; where this process has no queue, kube-scheduler's pods are its own."""
    pods = [pod("typo", devices=1, scheduler_name="my-schedular", created=2.0), pod("theirs", devices=1, created=1.0)]
    for queued, count in ((True, 2), (False, 0)):
        desk = Desk(queued=queued, others=("my-schedular", "default-scheduler"))
        desk.put(pods=pods)
        answer = await desk.json("/v1/waiting")
        assert (answer["total"], len(answer["pods"])) == (count, count)
        for line, said in zip(answer["pods"], ("my-scheduler does not decide it", "serves my-schedular"), strict=False):
            assert line["cause"] == "scheduler_name"
            assert said in line["message"]


async def test_many_wait(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long list ends with the youngest left out, and says so."""
    monkeypatch.setattr(questions, "MOST_WAITING", 3)
    desk.put(pods=[pod(f"p{i}", uid=f"{i}", created=float(i * 7 % 10)) for i in range(10)])
    answer = await desk.json("/v1/waiting")
    assert [line["pod"]["created"] for line in answer["pods"]] == [0.0, 1.0, 2.0]
    assert (answer["total"], len(answer["notes"])) == (10, 1)


async def test_others_push_no_pod_out_of_the_list(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader sees the waiting pods of the own namespace however many others are older; nobody's of another one."""
    monkeypatch.setattr(questions, "MOST_WAITING", 3)
    older = [pod(f"p{i}", uid=f"{i}", namespace="b", created=float(i)) for i in range(5)]
    desk.put(pods=[*older, pod("mine", namespace="a", created=9.0)])
    own = (await desk.json("/v1/waiting?namespace=a", "jane"))["pods"]
    assert [(line["pod"]["name"], line["pod"]["created"]) for line in own] == [("", 0.0), ("", 1.0), ("mine", 9.0)]
    theirs = (await desk.json("/v1/waiting?namespace=c", "jane"))["pods"]
    assert [line["pod"]["created"] for line in theirs] == [0.0, 1.0, 2.0]


async def test_the_last_decisions(desk: Desk) -> None:
    """The newest first, bounded; a placement has its node and ids, a refusal its cause and message."""
    placement = Placement(ids=(0, 1, 2, 3), containers=((0, 1, 2, 3),), cores=CoreMask(255), level=4)
    desk.ring.note(pod("p", namespace="a", devices=4), Decision("n", placement, evaluated=5, feasible=2))
    desk.now += 1
    desk.ring.note(pod("q", namespace="b", devices=4), FitError(5, (("no room", 5),), cause=Cause.CAPACITY))
    refused, placed = (await desk.json("/v1/decisions"))["decisions"]
    assert (refused["at"], refused["nodeName"], refused["cause"]) == (51.0, "", "capacity")
    assert refused["message"] == "0/5 nodes are available: 5 no room."
    assert (placed["at"], placed["nodeName"], placed["ids"]) == (50.0, "n", [0, 1, 2, 3])
    assert placed["message"] == "2 of 5 nodes fit; it gets n (devices 0-3)."
    hidden, _ = (await desk.json("/v1/decisions?namespace=a", "jane"))["decisions"]
    assert (hidden["pod"]["name"], hidden["message"], hidden["cause"]) == ("", "", "capacity")
    desk.now += AGE
    for _ in range(2 * MOST_DECISIONS):
        desk.ring.note(pod("r", namespace="a"), FitError(0))
    assert len((await desk.json("/v1/decisions"))["decisions"]) == MOST_DECISIONS
