"""
`neuron-scheduler map --watch`: draws the map again when it has changed, until Ctrl-C, or until its reader leaves.

Does not list the cluster again and again: it watches. The running scheduler is asked again.
"""

import argparse
import gc
from collections.abc import AsyncIterator
from typing import Final

import anyio
import attrs

from neuron_scheduler.capture.following import Following, following
from neuron_scheduler.capture.live import check_rights
from neuron_scheduler.commands.ask import answer_of, connection_of, understood
from neuron_scheduler.commands.fleet_picture import PATH, lines_of, picture
from neuron_scheduler.commands.reading import (
    ASK_INSTEAD,
    answering,
    configured_profiles,
    connected,
    in_time,
    run_async,
)
from neuron_scheduler.commands.screen import draw, second_screen
from neuron_scheduler.explain.answers.fleet import Fleet
from neuron_scheduler.interruption import interruptible
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.telemetry.terminal import terminal

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
            await _draw(_pictures(followed, arguments), arguments)


async def _pictures(followed: Following, arguments: argparse.Namespace) -> AsyncIterator[Fleet]:
    while True:
        fleet = picture(followed.current(), arguments)
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
