"""
Runs seeds in several processes, with or without a mutant, and hands over their results as they come.

Each of the processes is a `zygote`, which works on one seed at a time. It starts with PYTHONHASHSEED=0, so that sets
have one order. This process keeps the real clock.
"""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

import attrs
import msgspec

from tests.mutants.mutant import ROOT, Mutant, copy_with
from tests.simulation.jobs import Job, Result

Zygote = subprocess.Popen[bytes]


def _never(_result: Result) -> bool:
    return False


class ZygoteError(Exception):
    """A process that simulates has ended by itself; it has written why to standard error."""


@attrs.define(eq=False)
class Runner:
    """
    Some processes that simulate; a context manager, which ends them.

    Attributes:
        processes: how many seeds are simulated at the same time.
        mutant: of which they simulate a copy; None for the project as it is.
    """

    processes: int = attrs.field(factory=lambda: len(os.sched_getaffinity(0)))
    mutant: Mutant | None = None
    _zygotes: list[Zygote] = attrs.field(factory=list, init=False)
    _copy: contextlib.ExitStack = attrs.field(factory=contextlib.ExitStack, init=False)

    def __enter__(self) -> Self:
        folder = self._copy.enter_context(copy_with(self.mutant)) if self.mutant else ROOT
        command = [sys.executable, "-m", "tests.simulation.zygote"]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        for _ in range(self.processes):
            self._zygotes.append(
                subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,  # so that its children end with it
                )
            )
        return self

    def __exit__(self, *_exc: object) -> None:
        for zygote in self._zygotes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(zygote.pid, signal.SIGKILL)
            zygote.communicate()
        self._copy.close()

    def run(self, jobs: Iterable[Job], *, last: Callable[[Result], bool] = _never) -> Iterator[tuple[Job, Result]]:
        """
        Yield each job with its result, in the order in which they are done.

        A job is taken from the iterable when it begins. None is begun after a result of which `last` says so.

        Raises:
            ZygoteError: a process has ended.
        """
        done: queue.Queue[tuple[Job, Result] | Exception | None] = queue.Queue()
        waiting, lock, closed = iter(jobs), threading.Lock(), threading.Event()

        def work(zygote: Zygote) -> None:
            try:
                while not closed.is_set():
                    with lock:
                        job = next(waiting, None)
                    if job is None:
                        break
                    result = _answer(zygote, job)
                    if last(result):
                        closed.set()
                    done.put((job, result))
            except Exception as error:  # noqa: BLE001 - raised by the thread that waits
                done.put(error)
            done.put(None)

        workers = [threading.Thread(target=work, args=(zygote,), daemon=True) for zygote in self._zygotes]
        for worker in workers:
            worker.start()
        try:
            for _ in workers:
                while (answered := done.get()) is not None:
                    if isinstance(answered, Exception):
                        raise answered
                    yield answered
        finally:
            closed.set()
            for worker in workers:
                worker.join()

    def all(self, jobs: Sequence[Job]) -> list[Result]:
        """Return the results in the order of the jobs."""
        results = dict(self.run(jobs))
        return [results[job] for job in jobs]


def _answer(zygote: Zygote, job: Job) -> Result:
    if zygote.stdin is None or zygote.stdout is None:
        raise RuntimeError("a process without pipes")
    with contextlib.suppress(BrokenPipeError):
        zygote.stdin.write(msgspec.json.encode(job) + b"\n")
        zygote.stdin.flush()
    line = zygote.stdout.readline()
    if not line:
        raise ZygoteError(f"the process that simulates has ended with {zygote.wait()}; its last words are above")
    return msgspec.json.decode(line, type=Result)
