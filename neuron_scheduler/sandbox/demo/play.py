"""
`neuron-scheduler demo`: the real scheduler process at work on a simulated fleet, with a picture.

Runs the embedded API server, the scheduler as a child process and the stage. Needs no cluster, and ends by itself
without `--serve`.
"""

import argparse
import errno
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.sandbox.demo import scheduler_process, workload
from neuron_scheduler.sandbox.demo.workload import DemoError
from neuron_scheduler.sandbox.server import ApiServer
from neuron_scheduler.telemetry.line_formats import leaves

Command: TypeAlias = Callable[[str], Sequence[str]]

_INTERRUPTED = 130  # as a shell reports it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the demo."""
    parser.description = "Watch the scheduler place pods on a simulated fleet. Needs no cluster."
    parser.add_argument("--serve", action="store_true", help="keep running afterwards, for your own kubectl")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port of the API server; 0: a free one")
    parser.add_argument("--export", default="", metavar="FILE.svg", help="write the last screen as SVG")


def _real_scheduler(url: str) -> Sequence[str]:
    return scheduler_process.command(url, workload.SCHEDULER_NAME)


def run(arguments: argparse.Namespace, *, command: Command = _real_scheduler) -> int:
    """
    Play the demo: 0 if all checks passed, 1 if not, 130 if it was interrupted before its end.

    `command` makes the command line of the scheduler from the URL of the API server.

    Raises:
        ConfigurationError: rich is not installed, the port cannot be used, or the folder to export to is not there.
    """
    try:
        from neuron_scheduler.sandbox.demo import stage  # noqa: F401 - fails before anything is started
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the demo draws with rich, which is not installed: run `make demo`, or pip install rich"
        ) from error
    if arguments.export and not Path(arguments.export).absolute().parent.is_dir():
        raise ConfigurationError(f"--export {arguments.export}: there is no such folder")
    code = 0
    try:
        code = anyio.run(_play, arguments, command, backend_options={"use_uvloop": True})
    except* DemoError as group:
        code = 1
        for reason in leaves(group):
            print(f"neuron-scheduler demo: {reason}", file=sys.stderr)  # noqa: T201 - for a person
    return code


async def _play(arguments: argparse.Namespace, command: Command) -> int:
    server = ApiServer(port=arguments.port, termination_limit=0.0)
    try:
        async with server.serving():
            return await _on_stage(server, arguments, command(server.url))
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        raise ConfigurationError(f"--port {arguments.port}: {error.strerror}; choose another") from error


async def _on_stage(server: ApiServer, arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    from neuron_scheduler.sandbox.demo.stage import Stage

    stage = Stage(server)
    async with scheduler_process.running(argv) as scheduler, anyio.create_task_group() as tasks:
        tasks.start_soon(_watch_over, scheduler)
        tasks.start_soon(_end_on_signal, tasks.cancel_scope)
        await stage.play()
        if arguments.export:
            stage.export(arguments.export)
        if arguments.serve:
            await stage.serve()
        tasks.cancel_scope.cancel()
    if scheduler.returncode != 0:
        raise DemoError(f"the scheduler ended with exit code {scheduler.returncode}, not 0:\n{scheduler.last_words()}")
    return 0 if stage.finished else _INTERRUPTED


async def _watch_over(scheduler: scheduler_process.SchedulerProcess) -> None:
    code = await scheduler.wait()
    raise DemoError(f"the scheduler ended by itself with exit code {code}. Its last lines:\n{scheduler.last_words()}")


async def _end_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
