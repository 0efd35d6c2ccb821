"""
How many devices are in use, and how long pods wait for a place, while pods come and go.

    python -m benchmarks.placement [--scenarios mixed] [--loads 0.95] [--contenders ours fgd] [--seeds 1 2]

The real cluster, decision and queue on 60 nodes in virtual time (`benchmarks.churn.simulation`), beside other
preferences in the same profile, and beside a pool without topology. With `--cpu 0.875` and `--memory 0.875` the pods
ask for cpu and memory too: that share of the amount that belongs to their devices. Prints a table for each scenario and
load; `--record` adds a line of JSON for each run to a file and draws `.svg` beside it.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.churn.contenders import CONTENDERS
from benchmarks.churn.lifetimes import OPENB, Lifetimes
from benchmarks.churn.outcome import Outcome, Summary, Waits, summary, waits_of
from benchmarks.churn.simulation import Simulation
from benchmarks.churn.workload import SCENARIOS, Demand, workload
from benchmarks.contest.plots import bar_chart

LOADS: Final = (0.85, 0.9, 0.95, 1.0)


def run(
    scenario: str, *, load: float, contender: str, seed: int, pods: int, demand: Demand, lifetimes: Lifetimes
) -> Outcome:
    """Return the outcome of a contender on a workload."""
    made = workload(SCENARIOS[scenario], load=load, seed=seed, pods=pods, demand=demand, lifetimes=lifetimes)
    setting = CONTENDERS[contender].setting(made)
    simulation = Simulation(setting, CONTENDERS[contender].profile(made))
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
    parser.add_argument("--trace", type=Path, help="a CSV file of the form of openb's, for other lifetimes")
    parser.add_argument("--record", type=Path, help="file to add a line of JSON to for each run; .svg beside it")
    return parser.parse_args()


def main() -> None:
    """Run, print and record."""
    arguments = _arguments()
    lifetimes = Lifetimes.read(arguments.trace) if arguments.trace else OPENB
    demand = Demand(arguments.cpu, arguments.memory)
    outcomes = []
    for scenario in arguments.scenarios:
        print(f"{scenario}: {SCENARIOS[scenario].title}")
        for load in arguments.loads:
            began, summaries = time.perf_counter(), []
            for contender in arguments.contenders:
                runs = [
                    run(
                        scenario,
                        load=load,
                        contender=contender,
                        seed=seed,
                        pods=arguments.pods,
                        demand=demand,
                        lifetimes=lifetimes,
                    )
                    for seed in arguments.seeds
                ]
                outcomes += runs
                summaries.append(summary(runs))
            print(f" load {load:g} ({time.perf_counter() - began:.0f} s)")
            print("\n".join(table(summaries)), flush=True)
    if arguments.record:
        with arguments.record.open("a") as written:
            written.writelines(json.dumps(outcome.record()) + "\n" for outcome in outcomes)
        arguments.record.with_suffix(".svg").write_text(picture(outcomes))


if __name__ == "__main__":
    main()
