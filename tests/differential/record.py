"""
Record kube-scheduler's answers again: `python -m tests.differential.record [NAME ...]`.

Writes `fixtures/<vocabulary>.jsonl`. Prints the number of scenarios and of different answers; those are recorded
too, because kube-scheduler is the judge.
"""

import argparse
import sys

import anyio

from tests.differential.comparison import disagreements, recorded
from tests.differential.judge import run_judge
from tests.differential.recording import FOLDER, write
from tests.differential.vocabulary import VOCABULARIES
from tests.differential.world import numbered_world

WORLDS = 6  # of each vocabulary


async def record(names: list[str]) -> None:
    """Record some worlds of each named vocabulary."""
    async with run_judge() as judge:
        for name in names:
            recordings = [await recorded(judge, f"w{number}", numbered_world(number, name)) for number in range(WORLDS)]
            write(FOLDER / f"{name}.jsonl", recordings)
            different = [disagreement for recording in recordings for disagreement in disagreements(recording)]
            scenarios = sum(len(recording.answers) for recording in recordings)
            sys.stdout.write("\n".join([f"{name}: {scenarios} scenarios, {len(different)} differ", *different]) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.differential.record", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(VOCABULARIES)}; default: all")
    anyio.run(record, parser.parse_args().names or list(VOCABULARIES), backend_options={"use_uvloop": True})
