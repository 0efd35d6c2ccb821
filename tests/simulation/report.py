"""What the runner prints: a failure, a summary of many seeds, and a history."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.mutants.mutant import Mutant
from tests.simulation.jobs import Job, Result
from tests.simulation.reduction import compact

_HOUR = 3600.0
_MOST_SEEDS = 20


def command(job: Job, *, mutant: Mutant | None = None) -> str:
    """Return the command that replays a job."""
    without = f" --without {compact(job.without)}" if job.without else ""
    changed = f" --mutant {mutant.name}" if mutant else ""
    return f"python -m tests.simulation {job.seed}{without}{changed}"


def failed(result: Result, *, mutant: Mutant | None = None) -> str:
    """Return what is wrong with a seed, in a few lines."""
    lines = [f"seed {result.seed} {result.end}: {command(Job(seed=result.seed), mutant=mutant)}"]
    lines += [f"  {v.at:.3f} s {v.oracle}: {v.text}" for v in result.violations[:3]]
    lines += [f"  ... {len(result.violations) - 3} more"] * (len(result.violations) > 3)
    lines += [f"  {line}" for line in result.trouble.splitlines()[-30:]]
    return "\n".join(lines) + "\n"


def replayed(job: Job, result: Result, *, mutant: Mutant | None = None) -> str:
    """Return the history of a seed, and the verdict."""
    history = f"{result.history}\n" if result.history else ""
    violations = "".join(f"VIOLATION at {v.at:.3f} s, {v.oracle}: {v.text}\n" for v in result.violations)
    trouble = f"{result.trouble}\n" if result.trouble else ""
    verdict = f"seed {result.seed} {result.end}, digest {result.digest[:16] or 'none'}"
    return f"{history}{violations}{trouble}{verdict}\nReplay: {command(job, mutant=mutant)}\n"


def summary(results: Sequence[Result]) -> str:
    """Return how many seeds passed, what struck, and which oracles failed on which seeds."""
    ends = Counter(result.end for result in results)
    virtual, cpu = sum(result.virtual for result in results), sum(result.cpu for result in results)
    lines = [
        f"{len(results):,} seeds: {', '.join(f'{count:,} {end}' for end, count in sorted(ends.items()))}",
        f"{virtual / _HOUR:,.1f} virtual hours in {cpu:,.0f} CPU seconds",
        "faults that struck:",
    ]
    struck: Counter[str] = Counter()
    for result in results:
        struck.update(result.struck)
    lines += [f"  {count:>12,} {kind}" for kind, count in sorted(struck.items())] or ["  none"]
    seeds: defaultdict[str, list[int]] = defaultdict(list)
    for result in results:
        for oracle in result.oracles:
            seeds[oracle].append(result.seed)
    lines += ["failures:"] if seeds else []
    for oracle, found in sorted(seeds.items()):
        more = f" and {len(found) - _MOST_SEEDS} more" if len(found) > _MOST_SEEDS else ""
        lines.append(f"  {oracle}: {len(found)} seeds: {' '.join(map(str, sorted(found)[:_MOST_SEEDS]))}{more}")
    return "\n".join(lines) + "\n"
