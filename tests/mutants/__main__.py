"""
`python -m tests.mutants`: break promises of the project one by one, and see that each is noticed.

Before a test is removed, or what it tests is rebuilt: the mutants of that room must be caught before and after. Each is
made in a copy of the project, in which the tests that it names are run, and its seed is simulated.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.hunt import SEEDS, Hunt
from tests.mutants.mutant import Mutant, copy_with
from tests.mutants.registry import MUTANTS, record
from tests.simulation.runner import Runner

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_TESTS_FAILED: Final = 1  # the exit code of pytest; others mean that the tests could not be run
_SHOWN: Final = 4_000


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if a mutant is not caught."""
    options = _parsed(arguments)
    chosen = [each for each in MUTANTS if _is_chosen(each, options)]
    if options.list:
        sys.stdout.writelines(f"{each.name}: {each.broken}; {each.danger}\n  {_catchers(each)}\n" for each in chosen)
        return 0
    if not options.find and not _pass_without(chosen):
        return 1
    with Hunt(options.processes) as hunt:
        missed = 0
        for each in chosen:
            started = time.monotonic()
            caught, text = _found(each, hunt, options.tries) if options.find else _caught(each, hunt)
            verdict = "caught" if caught else "NOT CAUGHT"
            sys.stdout.write(f"{verdict:10}  {time.monotonic() - started:5.1f} s  {each.name:48}  {text}\n")
            sys.stdout.flush()
            missed += not caught
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} mutants are caught\n")
    return int(missed > 0)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="mutants whose name, files or tests contain one of these")
    parser.add_argument("--all", action="store_true", help="all mutants")
    parser.add_argument("--fast", action="store_true", help="only those that a test catches without a control plane")
    parser.add_argument("--list", action="store_true", help="print what would be broken, and what notices it")
    parser.add_argument("--find", action="store_true", help="look for a seed that catches each, and record it")
    parser.add_argument("--tries", type=int, default=SEEDS, help=f"seeds to look through for each mutant ({SEEDS})")
    parser.add_argument("--processes", type=int, default=Runner().processes, help="that simulate; default: all cores")
    options = parser.parse_args(arguments)
    if not (options.words or options.all or options.fast or options.list):
        parser.error("name mutants, or give --all or --fast")
    return options


def _is_chosen(each: Mutant, options: argparse.Namespace) -> bool:
    if (options.fast and (each.plane or not each.tests)) or (options.find and each.seed is None):
        return False
    texts = (each.name, *(edit.file for edit in each.edits), *each.tests)
    return not options.words or any(word in text for word in options.words for text in texts)


def _catchers(each: Mutant) -> str:
    by_seed = [] if each.seed is None else [f"seed {each.seed} ({', '.join(each.oracles)})"]
    return ", ".join([*each.tests, *by_seed])


def _pass_without(chosen: Sequence[Mutant]) -> bool:
    """Return whether the tests pass without any mutant; a test that fails anyway catches nothing."""
    with copy_with(None) as copy:
        for plane in (False, True):
            tests = dict.fromkeys(test for each in chosen if each.plane is plane for test in each.tests)
            code, output = _run([*tests], copy, plane=plane) if tests else (0, "")
            if code:
                sys.stdout.write(f"{output[-_SHOWN:]}\nThese tests do not pass without a mutant.\n")
                return False
    return True


def _caught(each: Mutant, hunt: Hunt) -> tuple[bool, str]:
    """Return whether all that must notice a mutant does: its tests, its seed, or both; and what did, or why not."""
    code, text = _TESTS_FAILED, ""
    if each.tests:
        with copy_with(each) as copy:
            code, output = _run(each.tests, copy, plane=each.plane)
        failed = _FAILED.search(output)
        text = failed[1] if failed else output[-_SHOWN:] if code else "its tests pass"
    if each.seed is None or code != _TESTS_FAILED:
        return code == _TESTS_FAILED, text
    catch, by_seed = hunt.catch(each, [each.seed])
    return catch is not None, f"{text} {by_seed}".strip()


def _found(each: Mutant, hunt: Hunt, tries: int) -> tuple[bool, str]:
    """Look for a seed that catches a mutant, and record it."""
    catch, text = hunt.catch(each, hunt.likely_first(each)[:tries])
    if catch is not None:
        record(each.name, catch.seed, catch.oracles)
    return catch is not None, text


def _run(tests: Sequence[str], copy: Path, *, plane: bool) -> tuple[int, str]:
    """Run tests in a copy until one fails; return the exit code of pytest, and what it printed."""
    environment = {**os.environ, "TESTS": "" if plane else "fast"}
    marked = "control_plane" if plane else "not control_plane"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-rfE", "-p", "no:cacheprovider", "-m", marked]
    done = subprocess.run(
        [*command, *tests], cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the processes are ended
    sys.exit(main(sys.argv[1:]))
