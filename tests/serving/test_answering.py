"""Questions take turns, for a limited time, and what was answered lately is neither computed nor sent again."""

import asyncio
import json
import math
import time
from typing import Any

import anyio
import pytest

from neuron_scheduler.explain.answers import to_json
from neuron_scheduler.serving import answering, questions
from neuron_scheduler.serving.answering import AGE, LOOK, REST, Answering, Question, Steps
from neuron_scheduler.serving.names import Names
from neuron_scheduler.serving.pages import WebPage
from neuron_scheduler.serving.sources import STANDBY, AnswerSources
from neuron_scheduler.steps import run
from tests.serving.conftest import Desk
from tests.support.builders import node, pod
from tests.support.web_requests import body_of

TRN1 = "trn1.32xlarge"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """Return the questions for the fleet that were computed."""
    seen: list[Question] = []

    def fleet(asked: AnswerSources, question: Question) -> Steps:
        seen.append(question)
        return (yield from questions.fleet_now(asked, question))

    monkeypatch.setattr(questions, "QUESTIONS", {**questions.QUESTIONS, "/v1/fleet": fleet})
    return seen


async def test_polling_is_cheap(counted: list[Question]) -> None:
    """An answer is computed once a second for all who see the same, and not sent to a client that has it."""
    desk = Desk()
    desk.put([node("n", TRN1)])
    first, *others = [await desk.reply("/v1/fleet", token) for token in ("admin", "admin", "jane")]
    assert [question.names for question in counted] == [Names(None), Names("")]
    assert first.headers["ETag"] == others[0].headers["ETag"] != others[1].headers["ETag"]
    again = await desk.reply("/v1/fleet", if_none_match=first.headers["ETag"])
    assert (again.status, await body_of(again), len(counted)) == (304, b"", 2)
    desk.put(pods=[pod("r", namespace="a", devices=1, on="n", ids=(10,))])
    assert (await desk.reply("/v1/fleet", if_none_match=first.headers["ETag"])).status == 304
    desk.now += AGE
    changed = await desk.reply("/v1/fleet", if_none_match=first.headers["ETag"])
    assert (changed.status, len(counted)) == (200, 3)
    assert changed.headers["ETag"] != first.headers["ETag"]


async def test_one_at_a_time(counted: list[Question]) -> None:
    """Many who ask the same at once get one answer."""
    desk = Desk()
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(desk.reply, "/v1/fleet")
    assert len(counted) == 1


@pytest.mark.parametrize(("load", "rest"), [(0.0, LOOK), (0.5, REST)])
async def test_questions_rest_while_other_tasks_work(monkeypatch: pytest.MonkeyPatch, load: float, rest: float) -> None:
    """After an answer the event loop rests from questions, for longer if the other tasks have work."""
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("neuron_scheduler.steps.LONGEST_TURN", math.inf)  # one turn, on whatever machine
    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr(anyio, "current_time", lambda: now[0])
    monkeypatch.setattr(time, "thread_time", lambda: now[0] * load)
    await Desk().reply("/v1/fleet")
    assert now == [pytest.approx(rest)]


async def test_a_question_has_its_time(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time includes the wait for the others, and a question that is given up leaves its turn to the next."""
    monkeypatch.setattr(answering, "SECONDS", 0.01)
    answers = _answering(desk.pages["/v1/fleet"])
    await answers._turn.acquire()
    asking = asyncio.create_task(desk.refusal("/v1/fleet"))
    status, sentence = await asking
    answers._turn.release()
    assert (status, sentence.startswith("the answer takes longer than 0.01 s")) == (503, True)
    monkeypatch.setattr(answering, "SECONDS", 8.0)
    assert (await desk.reply("/v1/fleet")).status == 200


def _answering(page: WebPage) -> Answering:
    bound: Any = page.answer
    answers: Answering = bound.func.__self__
    return answers


async def test_the_json_of_an_answer(desk: Desk) -> None:
    """It is the answer's JSON form, however many pieces it is made of."""
    held = [pod(f"p{i}", devices=1, on="n", ids=(i,)) for i in range(16)]
    desk.put([node("n", TRN1), *(node(f"n{i}", "inf2.xlarge") for i in range(100))], held)
    steps = questions.fleet_now(_answering(desk.pages["/v1/fleet"]).sources, Question({}, Names(None)))
    assert json.loads(await body_of(await desk.reply("/v1/fleet"))) == to_json(run(steps))


async def test_a_standby_replica_answers_and_says_so(desk: Desk) -> None:
    """Its picture is as good as the leader's."""
    desk.put([node("n", TRN1)])
    desk.leads = False
    answer = await desk.json("/v1/fleet")
    assert (len(answer["machines"]), answer["notes"]) == (1, [STANDBY])
    assert STANDBY in (await desk.json("/v1/decisions"))["notes"]


async def test_before_the_caches_are_synced(desk: Desk) -> None:
    """There is no answer from a part of the cluster."""
    desk.missing = "not listed yet: /api/v1/pods"
    status, sentence = await desk.refusal("/v1/fleet")
    assert (status, sentence) == (503, "this process has just started: not listed yet: /api/v1/pods")
    assert (await desk.refusal("/v1/fleet", ""))[0] == 401


@pytest.mark.parametrize("target", ["/v1/waiting?pod=p", "/v1/fleet?node=n", "/v1/decisions?x="])
async def test_unknown_parameters(desk: Desk, target: str) -> None:
    """What is misspelt is not ignored."""
    status, sentence = await desk.refusal(target)
    assert (status, sentence.endswith("; the parameters are: namespace")) == (400, True)
