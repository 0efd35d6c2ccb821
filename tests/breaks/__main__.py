"""
`python -m tests.breaks`: break promises of the project one by one, and see that a test fails each time.

Before a test is removed, or what it tests is rebuilt: the breaks of that room must be caught before and after. Each
break is made in a copy of the tree, and only the tests that it names are run, once without it and once with it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from tests.breaks.broken import ROOT, Break, Share
from tests.breaks.every import BREAKS

_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_TESTS_FAILED: Final = 1  # the exit code of pytest; others mean that the tests could not be run
_SHOWN: Final = 4_000


def main(arguments: Sequence[str]) -> int:
    """Run the command; return 1 if a break is not caught."""
    options = _parsed(arguments)
    chosen = [each for each in BREAKS if _is_chosen(each, options)]
    if options.list:
        sys.stdout.writelines(f"{each.name}: {each.promise} ({each.file}; {each.share})\n" for each in chosen)
        return 0
    with tempfile.TemporaryDirectory(prefix="breaks-") as folder:
        copy = Path(folder)
        _copy_tree(copy)
        if not _pass_without(chosen, copy):
            return 1
        missed = sum(not _is_caught(each, copy) for each in chosen)
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} breaks are caught\n")
    return 1 if missed else 0


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.breaks", description=__doc__)
    parser.add_argument("words", nargs="*", help="breaks whose name, file or tests contain one of these")
    parser.add_argument("--all", action="store_true", help="all breaks")
    parser.add_argument(
        "--fast", action="store_true", help="only those that `make test` catches without a control plane"
    )
    parser.add_argument("--list", action="store_true", help="print what would be broken")
    options = parser.parse_args(arguments)
    if not (options.words or options.all or options.fast or options.list):
        parser.error("name breaks, or give --all or --fast")
    return options


def _is_chosen(each: Break, options: argparse.Namespace) -> bool:
    if options.fast and each.share is not Share.FAST:
        return False
    return not options.words or any(
        word in text for word in options.words for text in (each.name, each.file, *each.tests)
    )


def _copy_tree(copy: Path) -> None:
    """Copy what git knows of, or would: a tree without what was built."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def _pass_without(chosen: Sequence[Break], copy: Path) -> bool:
    """Return whether the tests pass without any break; a test that fails anyway catches nothing."""
    for share in Share:
        tests = dict.fromkeys(test for each in chosen if each.share is share for test in each.tests)
        code, output = _run([*tests], share, copy) if tests else (0, "")
        if code:
            sys.stdout.write(f"{output[-_SHOWN:]}\nThese tests do not pass without a break.\n")
            return False
    return True


def _is_caught(each: Break, copy: Path) -> bool:
    """Break the copy, run the tests, mend the copy, and print a line."""
    path, started = copy / each.file, time.monotonic()
    source = path.read_text()
    path.write_text(each.broken(source))
    try:
        code, output = _run(each.tests, each.share, copy)
    finally:
        path.write_text(source)
        Path(cache_from_source(str(path))).unlink(missing_ok=True)  # compiled from a file of this size and second
    caught = code == _TESTS_FAILED
    by = match[1] if caught and (match := _FAILED.search(output)) else ""
    verdict = "caught" if caught else "NOT CAUGHT" if code == 0 else "NOT RUN"
    sys.stdout.write(f"{verdict:10}  {time.monotonic() - started:5.1f} s  {each.name:44}  {by}\n")
    if code and not caught:
        sys.stdout.write(f"{output[-_SHOWN:]}\n")
    sys.stdout.flush()
    return caught


def _run(tests: Sequence[str], share: Share, copy: Path) -> tuple[int, str]:
    """Run tests in the copy until one fails; return the exit code of pytest, and what it printed."""
    environment = {**os.environ, "TESTS": "fast" if share is Share.FAST else ""}
    marked = "control_plane" if share is Share.PLANE else "not control_plane"
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-rfE", "-p", "no:cacheprovider", "-m", marked]
    done = subprocess.run(
        [*command, *tests], cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
