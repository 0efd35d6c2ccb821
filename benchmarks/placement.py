"""
How many devices are in use, and how long pods wait for a place, while pods come and go.

    python -m benchmarks.placement [--scenarios mixed] [--loads 0.95] [--contenders ours fgd] [--seeds 1 2]

The real cluster, decision and queue on 60 nodes in virtual time (`benchmarks.churn.simulation`), beside other
preferences in the same profile, and beside a pool without topology. `jobs` and `shuffled` have groups of four whole
nodes, beside the same without super-blocks, without UltraServers, and pod by pod. With `--cpu 0.875` and `--memory
0.875` the pods ask for cpu and memory too: that share of the amount that belongs to their devices. Prints a table for
each scenario and load; `--record` adds a line of JSON for each run to a file and draws `.svg` beside it.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.churn.contenders import CONTENDERS
from benchmarks.churn.simulation import Simulation
from benchmarks.churn.workload import SCENARIOS, Demand, workload
from benchmarks.contest.plots import bar_chart

LOADS: Final = (0.85, 0.9, 0.95, 1.0)


@attrs.frozen
class Waits:
    """
    How long pods waited for a place, in seconds; a pod that never got one has waited until the end.

    Attributes:
        pods: how many.
        unplaced: the share that got no place.
    """

    pods: int
    mean: float
    unplaced: float


@attrs.frozen
class Outcome:
    """
    One run.

    Attributes:
        utilisation: share of the devices that were in use after the warm-up.
        attempts: decisions for each pod.
        waits: of the pods that came after the warm-up, all together (0) and by size.
    """

    scenario: str
    load: float
    cpu: float
    memory: float
    contender: str
    seed: int
    utilisation: float
    attempts: float
    waits: Mapping[int, Waits]


def waits_of(simulation: Simulation) -> Mapping[int, Waits]:
    """Return how long the pods waited that came after the warm-up, all together (0) and by size."""
    by_size: dict[int, list[tuple[float, bool]]] = {0: []}
    for arrival in simulation.workload.arrivals:
        if arrival.at >= simulation.begins and not arrival.pod.rank:  # a job waits once
            placed_at = simulation.placed_at.get(arrival.pod.uid)
            waited = (simulation.now if placed_at is None else placed_at) - arrival.at
            for size in (0, arrival.size):
                by_size.setdefault(size, []).append((waited, placed_at is None))
    return {size: _waits(waits) for size, waits in sorted(by_size.items()) if waits}


def _waits(waits: Sequence[tuple[float, bool]]) -> Waits:
    mean = statistics.fmean(waited for waited, _ in waits)
    return Waits(len(waits), mean, sum(unplaced for _, unplaced in waits) / len(waits))


@attrs.frozen
class Summary:
    """
    The runs of one contender at one load: means over the seeds.

    Attributes:
        deviation: standard deviation of the utilisation; 0 for a single run.
        waits: means over the runs for each size (0: all).
    """

    contender: str
    runs: int
    utilisation: float
    deviation: float
    attempts: float
    waits: Mapping[int, Waits]


def summary(outcomes: Iterable[Outcome]) -> Summary:
    """Return the means of the runs of one contender at one load; there must be at least one."""
    runs = list(outcomes)
    utilisations = [outcome.utilisation for outcome in runs]
    sizes = sorted(set.intersection(*(set(outcome.waits) for outcome in runs)))
    return Summary(
        contender=runs[0].contender,
        runs=len(runs),
        utilisation=statistics.fmean(utilisations),
        deviation=statistics.stdev(utilisations) if len(runs) > 1 else 0.0,
        attempts=statistics.fmean(outcome.attempts for outcome in runs),
        waits={size: _mean([outcome.waits[size] for outcome in runs]) for size in sizes},
    )


def _mean(values: Sequence[Waits]) -> Waits:
    mean = statistics.fmean(waits.mean for waits in values)
    unplaced = statistics.fmean(waits.unplaced for waits in values)
    return Waits(sum(waits.pods for waits in values), mean, unplaced)


def run(scenario: str, *, load: float, contender: str, seed: int, pods: int, demand: Demand) -> Outcome:
    """Return the outcome of a contender on a workload."""
    made = workload(SCENARIOS[scenario], load=load, seed=seed, pods=pods, demand=demand)
    setting = CONTENDERS[contender].setting(made)
    simulation = Simulation(setting, CONTENDERS[contender].profile(made), CONTENDERS[contender].turn_after)
    simulation.run()
    return Outcome(
        scenario=scenario,
        load=load,
        cpu=demand.cpu,
        memory=demand.memory,
        contender=contender,
        seed=seed,
        utilisation=simulation.utilisation,
        attempts=simulation.attempts / len(setting.arrivals),
        waits=waits_of(simulation),
    )


def table(summaries: Sequence[Summary]) -> Iterator[str]:
    """Yield the lines of a table of contenders at one load."""
    sizes = sorted({size for cell in summaries for size in cell.waits if size})
    yield f"  {'':<10}{'in use':>14}{'attempts':>10}   mean wait in seconds (share without a place), all and by size"
    yield f"  {'':<10}{'':>14}{'per pod':>10}" + "".join(f"{size:>15}" for size in ("all", *sizes))
    for cell in summaries:
        spread = f"{cell.utilisation:.1%} ±{cell.deviation * 100:.1f}"
        cells = "".join(f"{_wait(cell.waits.get(size)):>15}" for size in (0, *sizes))
        yield f"  {cell.contender:<10}{spread:>14}{cell.attempts:>10.1f}{cells}"


def _wait(waits: Waits | None) -> str:
    return "-" if waits is None else f"{waits.mean:,.0f} ({waits.unplaced:.1%})"


def picture(outcomes: Sequence[Outcome]) -> str:
    """Return a chart of the devices in use, by scenario and load."""
    named = {name: contender for name, contender in CONTENDERS.items() if any(o.contender == name for o in outcomes)}
    series = {contender.title: contender.color for contender in named.values()}
    groups: dict[str, dict[str, float | None]] = {}
    for outcome in outcomes:
        cell = groups.setdefault(f"{outcome.scenario}, load {outcome.load:g}", {})
        same = [o for o in outcomes if (o.scenario, o.load) == (outcome.scenario, outcome.load)]
        for name, contender in named.items():
            runs = [o for o in same if o.contender == name]
            cell[contender.title] = summary(runs).utilisation * 100 if runs else None
    return bar_chart("Devices in use while pods come and go", "percent of 60 nodes, by time", series, groups)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument(
        "--loads", nargs="+", type=float, default=LOADS, help="requested devices divided by the devices of the fleet"
    )
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--pods", type=int, default=6_000, help="arrivals in a run")
    parser.add_argument("--cpu", type=float, default=0.0, help="share of a node's cpu that belongs to all its devices")
    parser.add_argument("--memory", type=float, default=0.0, help="the same of memory")
    parser.add_argument("--record", type=Path, help="file to add a line of JSON to for each run; .svg beside it")
    return parser.parse_args()


def _taking_part(contenders: Iterable[str], scenario: str) -> Iterator[str]:
    has_jobs, is_whole = bool(SCENARIOS[scenario].ultraservers), scenario == "torus"
    for name in contenders:
        if (has_jobs or not CONTENDERS[name].groups) and (is_whole or not CONTENDERS[name].claims):
            yield name


def main() -> None:
    """Run, print and record."""
    arguments = _arguments()
    demand = Demand(arguments.cpu, arguments.memory)
    outcomes = []
    for scenario in arguments.scenarios:
        print(f"{scenario}: {SCENARIOS[scenario].title}")
        for load in arguments.loads:
            began, summaries = time.perf_counter(), []
            for contender in _taking_part(arguments.contenders, scenario):
                runs = [
                    run(scenario, load=load, contender=contender, seed=seed, pods=arguments.pods, demand=demand)
                    for seed in arguments.seeds
                ]
                outcomes += runs
                summaries.append(summary(runs))
            print(f" load {load:g} ({time.perf_counter() - began:.0f} s)")
            print("\n".join(table(summaries)), flush=True)
    if arguments.record:
        with arguments.record.open("a") as written:
            written.writelines(json.dumps(attrs.asdict(outcome)) + "\n" for outcome in outcomes)
        arguments.record.with_suffix(".svg").write_text(picture(outcomes))


if __name__ == "__main__":
    main()
