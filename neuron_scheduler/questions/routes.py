"""
The paths below `/v1/` and what they have in common: who asks, the turn in the lane, and what goes wrong.

Does not answer: each question has a module of its own.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs

from neuron_scheduler.endpoints.exchange import METHODS, Page, Reply, Request
from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.questions.lane import ClientGoneError, CrowdedError, Lane, Turn
from neuron_scheduler.questions.parameters import AskedWronglyError
from neuron_scheduler.questions.readers import Reader, Readers, TooManyReviewsError, unavailable
from neuron_scheduler.questions.refusals import bad, busy

FLEET, WAITING, DECISIONS = "/v1/fleet", "/v1/waiting", "/v1/decisions"
WHY, FIT = "/v1/why", "/v1/fit"
FEEDS: Final = (FLEET, WAITING, DECISIONS)
"""What the page shows to everybody, without the names of pods."""

Question = Callable[[Request, Reader, Turn], Awaitable[Reply]]
"""Answers a request of a reader, whose turn it is."""


@attrs.frozen(eq=False, kw_only=True)
class Route:
    """
    One path.

    Attributes:
        ask: answers.
        most: bytes of the body of a POST; 0 if the path has no such method.
    """

    ask: Question
    most: int = 0

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the path has."""
        return (*METHODS, "POST") if self.most else METHODS


def pages(
    routes: Mapping[str, Route], readers: Readers, lane: Lane, *, unsynced: Callable[[], str | None]
) -> dict[str, Page]:
    """
    Return the pages of questions, by path.

    Args:
        routes: by path.
        readers: judge who asks.
        lane: where questions wait for their turn.
        unsynced: says what this process does not know yet, None if it knows all.
    """
    return {path: Page(_answering(route, readers, lane, unsynced), route.methods) for path, route in routes.items()}


def _answering(
    route: Route, readers: Readers, lane: Lane, unsynced: Callable[[], str | None]
) -> Callable[[Request], Awaitable[Reply]]:
    async def answer(request: Request) -> Reply:
        reader = await readers.reader(request)
        if isinstance(reader, Reply):
            return reader
        missing = unsynced()
        if missing is not None:
            return busy(f"this process has just started: {missing}")
        if request.method != "POST":
            return await in_turn(request, reader)
        body = await request.body(route.most)  # before the turn: a slow client must not keep it
        return body if isinstance(body, Reply) else await in_turn(attrs.evolve(request, content=body), reader)

    async def in_turn(request: Request, reader: Reader) -> Reply:
        try:
            async with lane.turn(request.connection.gone) as turn:
                return await route.ask(request, reader, turn)
        except AskedWronglyError as error:
            return bad(str(error))
        except (CrowdedError, TooManyReviewsError) as error:
            return busy(str(error), 429)
        except TimeoutError:
            return busy(f"the answer takes longer than {lane.seconds:g} s; ask for less, or try again")
        except ClientGoneError:
            return busy("the client has gone")
        except (ApiError, UnreachableError) as error:
            return unavailable(error)

    return answer
