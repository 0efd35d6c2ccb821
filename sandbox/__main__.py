"""
`python -m sandbox` (`make demo`): the real scheduler process at work on a simulated fleet, with a picture.

Runs the embedded API server, the scheduler in the pods of its Deployment, which are processes here, and the stage. It
needs no cluster, and ends by itself without `--serve`.
"""

import argparse
import errno
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from sandbox.demo import installation, scheduler_pods
from sandbox.demo.workload import DemoError
from sandbox.server import ApiServer

PROGRAM: Final = "python -m sandbox"
_FAILED, _MISUSED = 1, 2
_INTERRUPTED, _READER_GONE = 130, 141  # as a shell reports SIGINT and SIGPIPE


class UsageError(Exception):
    """The demo cannot be run like this; the text says why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Play the demo with these flags (default: the process's own), and return the exit code; 2 for a wrong use."""
    try:
        return run(parse(argv))
    except UsageError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
    except KeyboardInterrupt:  # before or after the block that handles the signal
        return _INTERRUPTED
    return _MISUSED


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the flags; `--help` prints and exits, and so does a mistake, with 2."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Watch the scheduler place pods on a simulated fleet. Needs no cluster.",
        allow_abbrev=False,
    )
    parser.add_argument("--serve", action="store_true", help="keep running afterwards, for your own kubectl")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port of the API server; 0: a free one")
    parser.add_argument("--export", default="", metavar="FILE.svg", help="write the last screen as SVG")
    return parser.parse_args(argv)


def run(arguments: argparse.Namespace, *, program: scheduler_pods.Program = scheduler_pods.scheduler) -> int:
    """
    Play the demo: 0 if all checks passed, 1 if not, 130 if it was interrupted before its end, 141 if its reader went.

    `program` makes the command line of the scheduler from the arguments of its container.

    Raises:
        UsageError: rich is not installed, the port cannot be used, or the folder to export to is not there.
    """
    try:
        from sandbox.demo.picture import ReaderGoneError  # fails before anything is started
    except ModuleNotFoundError as error:
        raise UsageError(
            "the demo draws with rich, which is not installed: run `make demo`, or pip install rich"
        ) from error
    if arguments.export and not Path(arguments.export).absolute().parent.is_dir():
        raise UsageError(f"--export {arguments.export}: there is no such folder")
    code = 0
    try:
        code = anyio.run(_play, arguments, program, backend_options={"use_uvloop": True})
    except* ReaderGoneError:
        code = _READER_GONE
    except* DemoError as group:
        code = _FAILED
        for reason in _leaves(group):
            print(f"{PROGRAM}: {reason}", file=sys.stderr)
    return code


async def _play(arguments: argparse.Namespace, program: scheduler_pods.Program) -> int:
    tokens = {installation.TOKEN: "you"}
    server = ApiServer(port=arguments.port, termination_limit=0.0, controllers=True, tokens=tokens)
    server.runtime = pods = scheduler_pods.SchedulerPods(server, program, page=arguments.serve)
    try:
        async with server.serving():
            code = await _on_stage(server, pods, arguments)
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        raise UsageError(f"--port {arguments.port}: {error.strerror}; choose another") from error
    if pods.bad_ends:
        raise DemoError("; ".join(pods.bad_ends))
    return code


async def _on_stage(server: ApiServer, pods: scheduler_pods.SchedulerPods, arguments: argparse.Namespace) -> int:
    from sandbox.demo.stage import Stage

    stage = Stage(server)
    for installed in installation.objects():
        server.create(installed)
    async with _interruptible(partial(installation.place_other_pods, server), pods.forward):
        await stage.play()
        if arguments.export:
            stage.export(arguments.export)
        if arguments.serve:
            pods.ends_with_a_scheduler = False
            with TemporaryDirectory(prefix="neuron-scheduler-demo-") as folder:
                kubeconfig = Path(folder) / "kubeconfig"
                kubeconfig.write_text(installation.kubeconfig(server.url))
                await stage.serve(kubeconfig, f"http://127.0.0.1:{pods.port}/page")
    return 0 if stage.finished else _INTERRUPTED


@asynccontextmanager
async def _interruptible(*beside: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """
    End the block, and what runs beside it, without an error at SIGINT and SIGTERM.

    Errors leave it in an ExceptionGroup.
    """

    async def cancel_on_signal() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancel_on_signal)
        for task in beside:
            tasks.start_soon(task)
        yield
        tasks.cancel_scope.cancel()


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group and of the groups in it; of any other exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


if __name__ == "__main__":
    sys.exit(main())
