"""What an earlier leader asks for is listed before anything is asked for; a server that fails is waited for."""

import logging
from typing import Any

import anyio
import attrs
import pytest

from neuron_scheduler.controllers.earlier_requests import ANSWERED, UNANSWERED, EarlierRequests
from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.writes.machine_order import NAMESPACE
from neuron_scheduler.model.pod import Pod
from tests.controllers.test_machine_requests import placeholder

DOWN = ApiError(503, message="no")
NO_RIGHT = ApiError(403, reason="Forbidden", is_status=True)
UNAUTHENTICATED = ApiError(401, reason="Unauthorized", is_status=True)
CUT_OFF = UnreachableError("cut off")
NO_LIST = "Cannot list what an earlier leader asks an autoscaler for"


@attrs.define(eq=False)
class Form:
    """Stands in for a form: answers in turn with an error, and then with what is there."""

    there: list[Pod] = attrs.field(factory=lambda: [placeholder("capacity-buffer-0")])
    errors: list[Exception] = attrs.field(factory=list)
    asked: int = 0

    async def found(self) -> list[Pod]:
        """Return what is there, or raise the next error."""
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.there


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses that are made; none takes time."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(anyio, "sleep", pause)
    return pauses


def reading(*in_use: Any, others: tuple[Any, ...] = (), namespaces: tuple[str, ...] = ()) -> EarlierRequests:
    """Return what lists these forms, at one time and with the shortest pauses."""
    return EarlierRequests(in_use=in_use, others=others, namespaces=namespaces, clock=lambda: 0.0, random=lambda: 0.0)


async def test_another_form_than_before() -> None:
    """What an earlier leader asks for in a form that is not set any more is found, too; each form is listed once."""
    present, earlier = Form([placeholder("capacity-present-0")]), Form()
    found: Any = await reading(present, present, others=(earlier, present)).found()
    assert [(pod.name, form) for pod, form in found] == [
        ("capacity-present-0", present),
        ("capacity-buffer-0", earlier),
    ]
    assert present.asked == earlier.asked == 1


@pytest.mark.parametrize("there", [True, False])
async def test_profiles_that_ask_no_more(caplog: pytest.LogCaptureFixture, *, there: bool) -> None:
    """What is left is found all the same; nobody looks in a cluster that never had the namespace."""
    earlier, forbidden = Form(), Form(errors=[NO_RIGHT])
    namespaces = ("default", *[NAMESPACE] * there)
    found = await reading(others=(forbidden, earlier), namespaces=namespaces).found()
    assert [pod.name for pod, _ in found] == ["capacity-buffer-0"] * there
    assert earlier.asked == forbidden.asked == there
    assert caplog.messages == []


async def test_a_server_that_does_not_answer(pauses: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """Listing is tried until it works, with longer pauses; a line says so at the first failure, and one at the end."""
    caplog.set_level(logging.INFO)
    form = Form(errors=[DOWN, DOWN, UNAUTHENTICATED, CUT_OFF, CUT_OFF, DOWN])
    assert [pod.name for pod, _ in await reading(form).found()] == ["capacity-buffer-0"]
    assert pauses == [0.8, 1.6, 3.2, 6.4, 12.8, 25.6]
    assert caplog.messages == [UNANSWERED, UNANSWERED, UNANSWERED, ANSWERED], "one line for each kind of failure"


async def test_a_server_that_says_when_to_ask_again(pauses: list[float]) -> None:
    """It is not asked before."""
    await reading(Form(errors=[ApiError(429, retry_after=9.0, is_status=True)])).found()
    assert pauses == [9.0]


@pytest.mark.parametrize("in_use", [True, False])
async def test_a_missing_right(caplog: pytest.LogCaptureFixture, *, in_use: bool) -> None:
    """Nothing is found, and nothing is waited for; it is said only of a form in which machines are asked for."""
    forbidden, other = Form(errors=[NO_RIGHT]), Form()
    found: Any = await (reading(forbidden, other) if in_use else reading(other, others=(forbidden,))).found()
    assert [form for _, form in found] == [other]
    assert caplog.messages == [NO_LIST] * in_use


async def test_a_server_that_works_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to say."""
    assert await reading(Form([])).found() == []
    assert caplog.messages == []
