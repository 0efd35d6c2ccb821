"""
`neuron-scheduler map --watch`: draws the map again when it has changed, until Ctrl-C, or until its reader leaves.

Does not list the cluster again and again: it watches. The running scheduler is asked again.
"""

import argparse
import gc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import anyio
import attrs

from neuron_scheduler.capture.live import Following, check_rights, following
from neuron_scheduler.commands.ask import answer_of, connection_of, understood
from neuron_scheduler.commands.map_text import PATH, lines_of, picture
from neuron_scheduler.commands.reading import (
    ASK_INSTEAD,
    answering,
    configured_profiles,
    connected,
    in_time,
    run_async,
)
from neuron_scheduler.explain.answers import Fleet
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.stopping import interruptible
from neuron_scheduler.telemetry.terminal import terminal, write_out

ENDED: Final = 0
OLD: Final = "The API server has not answered for some minutes; this may be old."


def watch(arguments: argparse.Namespace) -> int:
    """
    Draw until stopped, and return the exit code.

    Raises:
        NeuronSchedulerError: the cluster cannot be followed.
    """
    with answering():
        gc.enable()  # it may run for days
        run_async(_watch, arguments)
    return ENDED


async def _watch(arguments: argparse.Namespace) -> None:
    async with interruptible():
        await (_draw_asked if arguments.ask else _draw_followed)(arguments)


async def _draw_asked(arguments: argparse.Namespace) -> None:
    connection = await connection_of(arguments)
    async with Client(connection=connection) as client:

        async def fleets() -> AsyncIterator[Fleet]:
            while True:
                answer = await in_time(arguments, connection.server, lambda: answer_of(client, PATH, {}))
                yield understood(answer, Fleet)

        await _draw(fleets(), arguments)


async def _draw_followed(arguments: argparse.Namespace) -> None:
    connection = await connected(arguments)
    async with Client(connection=connection) as client:
        profiles = tuple(configured_profiles(arguments.config).values())
        namespace = arguments.namespace or connection.namespace
        await in_time(arguments, connection.server, lambda: check_rights(client, namespace, ASK_INSTEAD))
        async with following(client, profiles=profiles) as followed:
            await in_time(arguments, connection.server, followed.ready)
            await _draw(_pictures(followed), arguments)


async def _pictures(followed: Following) -> AsyncIterator[Fleet]:
    while True:
        fleet = picture(followed.current())
        yield attrs.evolve(fleet, notes=(*fleet.notes, OLD)) if followed.is_old else fleet


async def _draw(fleets: AsyncIterator[Fleet], arguments: argparse.Namespace) -> None:
    """Draw the fleets that differ from what is shown, not more often than the arguments say."""
    shown: object = None
    with second_screen():
        async for fleet in fleets:
            screen = terminal()
            if (fleet, screen) != shown:
                shown = fleet, screen
                if not draw(lines_of(fleet, arguments, screen, whole=not screen.interactive)):
                    return
            await anyio.sleep(arguments.interval)


_ENTER: Final = "\033[?1049h\033[?25l"  # the second screen, without a cursor
_LEAVE: Final = "\033[?25h\033[?1049l"
_BEGIN: Final = "\033[?2026h\033[H"  # shown only when it is complete, by a terminal that knows this
_END_OF_LINE: Final = "\033[K"
_END: Final = "\033[J\033[?2026l"


@contextmanager
def second_screen() -> Iterator[None]:
    """Use the second screen inside the block, if there is a terminal; afterwards it is as it was."""
    if not terminal().interactive:
        yield
        return
    write_out(_ENTER)
    try:
        yield
    finally:
        write_out(_LEAVE)


def draw(lines: Sequence[str]) -> bool:
    """Draw a picture, and return whether somebody still looks; lines are printable, apart from codes for colour."""
    if not terminal().interactive:
        return write_out("".join(f"{line}\n" for line in (*lines, "")))
    return write_out(_BEGIN + "\n".join(f"{line}{_END_OF_LINE}" for line in lines) + _END)
