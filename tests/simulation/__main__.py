"""`python -m tests.simulation`: replay one seed, or run many."""

import argparse
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from tests.mutants.mutant import Mutant
from tests.mutants.registry import named
from tests.simulation import report
from tests.simulation.jobs import Job, Result
from tests.simulation.reduction import expanded, smallest
from tests.simulation.runner import Runner

_A_MINUTE = 60.0


def main(arguments: list[str]) -> int:
    """Run a command; return 1 if a seed has failed."""
    options = _parsed(arguments)
    with Runner(options.processes, options.mutant) as runner:
        return _replay(runner, options) if options.seeds is None else _run(runner, options)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="replay this seed and print its history")
    parser.add_argument(
        "--without", type=_parts, default=(), metavar="PARTS", help="leave these out, such as f0,d3-d7,r1,n2"
    )
    parser.add_argument("--quiet", action="store_true", help="print the verdict only")
    parser.add_argument("--small", action="store_true", help="leave out what is not needed for the failure")
    parser.add_argument("--seeds", type=_range, metavar="FIRST:END[:STEP]", help="run these seeds, END excluded")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no seed after so many minutes")
    parser.add_argument("--stop-at-first", action="store_true", help="begin no seed after one has failed")
    parser.add_argument("--mutant", type=_mutant, metavar="NAME", help="with this change of the package")
    parser.add_argument("--processes", type=int, default=Runner().processes, help="default: all cores")
    options = parser.parse_args(arguments)
    if (options.seed is None) == (options.seeds is None):
        parser.error("give one of SEED and --seeds")
    return options


def _parts(text: str) -> tuple[str, ...]:
    try:
        return expanded(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _mutant(text: str) -> Mutant:
    try:
        return named(text)
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"{error.args[0]}") from error


def _range(text: str) -> range:
    first, end, *step = text.split(":") if ":" in text else ("0", text)
    return range(int(first or 0), int(end), *map(int, step))


def _replay(runner: Runner, options: argparse.Namespace) -> int:
    """Replay one seed, made small first if that is asked for."""
    job = Job(seed=options.seed, without=options.without, tells=not options.quiet)
    (result,) = runner.all([job])
    if options.small and result.end != "passed":
        job, result = _small(runner, job, result)
    sys.stdout.write(report.replayed(job, result, mutant=options.mutant))
    return int(result.end != "passed")


def _small(runner: Runner, job: Job, result: Result) -> tuple[Job, Result]:
    """Return the smallest scenario in which one of the same oracles fails."""

    def without(parts: tuple[str, ...]) -> Job:
        return Job(seed=job.seed, without=(*job.without, *parts), tells=job.tells)

    def fail(candidates: Sequence[tuple[str, ...]]) -> Sequence[bool]:
        return [bool(found.oracles & result.oracles) for found in runner.all([without(parts) for parts in candidates])]

    rest = [part for part in result.parts if part not in job.without]
    small = without(smallest(rest, fail, at_once=runner.processes))
    return small, runner.all([small])[0]


def _run(runner: Runner, options: argparse.Namespace) -> int:
    """Run many seeds, print what fails as it does, and a summary."""
    ends = None if options.minutes is None else time.monotonic() + options.minutes * _A_MINUTE
    results: list[Result] = []

    def jobs() -> Iterator[Job]:
        for seed in options.seeds:
            if ends is not None and time.monotonic() >= ends:
                return
            yield Job(seed=seed)

    for _, result in runner.run(jobs(), last=lambda result: options.stop_at_first and result.end != "passed"):
        results.append(result)
        if result.end != "passed":
            sys.stdout.write(report.failed(result, mutant=options.mutant))
            sys.stdout.flush()
    sys.stdout.write(report.summary(results))
    failed = next((result for result in sorted(results, key=lambda r: r.seed) if result.end == "violated"), None)
    if failed is not None and not options.quiet and not options.mutant:
        job, small = _small(runner, Job(seed=failed.seed, tells=True), failed)
        sys.stdout.write(report.replayed(job, small, mutant=options.mutant))
    return int(any(result.end != "passed" for result in results))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the processes are ended
    sys.exit(main(sys.argv[1:]))
