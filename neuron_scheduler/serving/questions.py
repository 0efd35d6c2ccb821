"""
The paths below `/v1/` and what they have in common: who asks, the turn in the lane, and what goes wrong.

Each question is answered by a module of its own.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.serving.access import Access, Reader
from neuron_scheduler.serving.asked import Asked
from neuron_scheduler.serving.feeds import FleetFeed, ListsFeed
from neuron_scheduler.serving.fit import FitQuestion
from neuron_scheduler.serving.lane import CrowdedError, Lane, Turn
from neuron_scheduler.serving.pages import METHODS, Answer, Page, RefusedError
from neuron_scheduler.serving.why import WhyQuestion

FLEET, WAITING, DECISIONS = "/v1/fleet", "/v1/waiting", "/v1/decisions"
WHY, FIT = "/v1/why", "/v1/fit"
FEEDS: Final = (FLEET, WAITING, DECISIONS)
"""What the page shows to everybody, without the names of pods."""

Question = Callable[[web.BaseRequest, Reader, Turn], Awaitable[web.Response]]
"""Answers a request of a reader, whose turn it is."""


def question_pages(asked: Asked, reviews: UserReviews, *, public: bool) -> dict[str, Page]:
    """
    Return the pages of all questions, by path.

    Args:
        asked: what they are answered from.
        reviews: asks the API server about readers.
        public: whether the feeds of the page need no token, and then have no names of pods.
    """
    lists = ListsFeed(asked)
    questions: dict[str, Question] = {
        WHY: WhyQuestion(asked).answer,
        FIT: FitQuestion(asked).answer,
        FLEET: FleetFeed(asked).answer,
        WAITING: lists.waiting,
        DECISIONS: lists.decided,
    }
    access = Access(reviews=reviews, clock=asked.clock, public=FEEDS if public else ())
    lane = Lane()
    return {
        path: Page(_answering(question, access, lane, asked), (*METHODS, "POST") if path == FIT else METHODS)
        for path, question in questions.items()
    }


def _answering(question: Question, access: Access, lane: Lane, asked: Asked) -> Answer:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        reader = await access.reader(request)
        missing = asked.unsynced()
        if missing is not None:
            raise RefusedError(503, f"this process has just started: {missing}")
        if request.method == "POST":  # before the turn: a slow client must not keep it
            await _read(request)
        try:
            async with lane.turn() as turn:
                return await question(request, reader, turn)
        except CrowdedError as error:
            raise RefusedError(429, str(error)) from error
        except TimeoutError as error:
            sentence = f"the answer takes longer than {lane.seconds:g} s; ask for less, or try again"
            raise RefusedError(503, sentence) from error

    return answer


async def _read(request: web.BaseRequest) -> None:
    """Read the body; the request keeps it."""
    too_large = RefusedError(413, f"the body is larger than {request.client_max_size} bytes")
    if (request.content_length or 0) > request.client_max_size:
        raise too_large
    try:
        await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large from error
    except web.RequestPayloadError as error:
        raise RefusedError(400, f"the body cannot be read: {error}") from error
