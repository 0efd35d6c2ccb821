"""
The process in which seeds are simulated: it imports everything once, and forks a child for each seed.

So a simulation starts in milliseconds, nothing of one seed is left in the next, and none depends on which seeds ran
before it. The virtual clock comes before all other imports, because many modules take `time.monotonic` when they are
imported. The garbage collector is off: it would call finalizers at moments that depend on memory. Jobs come as lines of
JSON on standard input, results go as lines of JSON to standard output.
"""

import ctypes
import faulthandler
import gc
import importlib
import os
import resource
import signal
import sys
import tempfile
import traceback
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from tests.simulation.jobs import Job, Result

MOST_MEMORY = 4 << 30
"""Bytes of address space of a child: a simulation whose memory grows without end must not stop the machine."""

IMPORTED = ("tests.simulation.simulation", "encodings.idna", "kubernetes_asyncio.config.kube_config")
"""The simulation, and what its processes import when they run: half a second that each child would spend."""
_ASK = 0xFFFFFFFF
_NO_RANDOM_ADDRESSES = 0x0040000
"""`personality(2)`: return the present one, and ADDR_NO_RANDOMIZE."""


def main() -> None:
    """Serve jobs until standard input ends."""
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what the simulated process prints must not get among the results
    from tests.simulation import clock

    clock.install()
    for module in IMPORTED:
        importlib.import_module(module)
    import msgspec

    from tests.simulation.jobs import Job

    gc.disable()
    gc.freeze()
    for line in sys.stdin.buffer:
        results.write(msgspec.json.encode(_forked(msgspec.json.decode(line, type=Job))) + b"\n")


def _forked(job: "Job") -> "Result":
    """Simulate a seed in a child, and return its result, or how the child ended without one."""
    import msgspec

    from tests.simulation.jobs import Result

    with tempfile.TemporaryFile() as printed:
        ours, childs = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(ours)
            _live_and_die(job, childs, printed)
        os.close(childs)
        with os.fdopen(ours, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(child, 0)
        if answer and status == 0:
            return msgspec.json.decode(answer, type=Result)
        printed.seek(0)
        text = printed.read().decode(errors="replace")
    by_limit = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    hung = by_limit or text.startswith("Timeout (")
    return Result(seed=job.seed, end="hung" if hung else "crashed", trouble=text or f"wait status {status}")


def _live_and_die(job: "Job", pipe: int, printed: BinaryIO) -> None:
    """Simulate in this process, which is a child, and end it."""
    status = 1
    try:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_seconds, job.cpu_seconds + 5))
        faulthandler.register(signal.SIGXCPU, file=2, chain=True)
        faulthandler.dump_traceback_later(job.real_seconds, exit=True, file=2)
        import msgspec

        answer = msgspec.json.encode(_simulated(job))
        faulthandler.cancel_dump_traceback_later()
        with os.fdopen(pipe, "wb") as results:
            results.write(answer)
        status = 0
    except BaseException:  # noqa: BLE001 - the traceback is the result
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _simulated(job: "Job") -> "Result":
    from tests.simulation.jobs import Result, Violation
    from tests.simulation.reduction import listed, parts_of, without
    from tests.simulation.scenarios import scenario_of
    from tests.simulation.simulation import simulate

    full = scenario_of(job.seed)
    if job.plans:
        return Result(seed=job.seed, end="planned", parts=parts_of(full), history=listed(full, job.without))
    outcome = simulate(without(full, job.without))
    violations = tuple(Violation(found.oracle, found.at, found.text) for found in outcome.history.violations)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return Result(
        seed=job.seed,
        end="violated" if violations else "passed",
        violations=violations,
        parts=parts_of(full),
        struck=dict(outcome.history.faults),
        digest=outcome.history.digest(),
        cpu=usage.ru_utime + usage.ru_stime,
        virtual=full.ends_at,
        history=f"{listed(full, job.without)}\n\n{outcome.history.printed()}" if job.tells else "",
    )


def _keep_addresses() -> None:
    """
    Start again with the same addresses in each run.

    Some hashes are addresses (of functions and tasks, and in Python 3.11 of None), so they decide the order of sets.
    Where the system does not allow it, two runs of a seed may differ.
    """
    if sys.platform != "linux":
        return
    personality = ctypes.CDLL(None).personality
    now = personality(_ASK)
    if now & _NO_RANDOM_ADDRESSES or personality(now | _NO_RANDOM_ADDRESSES) == -1:
        return
    if personality(_ASK) & _NO_RANDOM_ADDRESSES:
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.zygote"])


if __name__ == "__main__":
    _keep_addresses()
    main()
