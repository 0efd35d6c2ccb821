"""
Run the checks and tests of `make test`, `make test-all` and `make fast`; build meanwhile what the last of them need.

    python -m tests.run test|test-all|fast

The steps run one after the other, and the builds beside them; a step may wait for them. Each step that fails is shown
whole, all others run nevertheless, and then the exit code is 1. One line always says what runs, and how far it is.
"""

import argparse
import asyncio
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

BIN: Final = Path(sys.executable).parent
ROOT: Final = Path(__file__).parents[1]
CLEAR: Final = "\r\x1b[2K"  # a terminal's current line
REPORT_EVERY: Final = 15.0  # seconds between progress lines where nothing can be overwritten

# What `make test` runs with a share of the examples, and of the tests with a control plane; the others need programs
# that take longer to build.
UNIT: Final = "not control_plane and not image and not browser"
MAIN_JOB: Final = "control_plane and main_job and not image"
# What `make test-all` runs: the same tests only where there are more examples.
ALL_EXAMPLES: Final = "not control_plane and not image and (sampled or browser)"
OTHERS: Final = "(control_plane and not main_job) or image"

SIDE_BY_SIDE: Final = ("--numprocesses=auto", "--dist=worksteal")
A_FILE_EACH: Final = ("--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder")


@attrs.define(eq=False)
class Step:
    """
    A program to run.

    Attributes:
        title: what it does, for the progress line.
        environment: variables that it gets beside ours.
        needs_builds: whether it waits for the builds.
        output: what it has printed so far.
        code: its exit code, once it has ended.
    """

    title: str
    argv: Sequence[str | Path]
    environment: Mapping[str, str] = attrs.field(factory=dict)
    needs_builds: bool = False
    output: str = attrs.field(default="", init=False)
    code: int | None = attrs.field(default=None, init=False)
    _began: float = attrs.field(default=0.0, init=False)

    async def run(self) -> None:
        """Run it to its end."""
        self._began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *map(str, self.argv),
            cwd=ROOT,
            env=os.environ | self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert process.stdout is not None
        try:
            while piece := await process.stdout.read(1 << 16):
                self.output += piece.decode(errors="replace")
            self.code = await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
                await process.wait()

    @property
    def news(self) -> str:
        """How far it is: how many tests have run, of how many, and how many failed; or else its last words."""
        lines = self.output.splitlines()
        dots = "".join(re.findall(r"^([.sxXFE]+)(?: *\[ *\d+%\])?$", self.output, re.MULTILINE))
        if not dots:
            return lines[-1][:100] if lines else ""
        of = re.search(r"\[(\d+) items\]", self.output)
        failed = sum(dots.count(mark) for mark in "FE")
        return f"{len(dots)}" + (f" of {of[1]}" if of else "") + (f", {failed} failed" if failed else "")

    @property
    def progress(self) -> str:
        """The title, the seconds so far, and how far it is."""
        return f"{self.title}: {time.monotonic() - self._began:.0f} s {self.news}".rstrip()

    @property
    def result(self) -> str:
        """What is shown at its end: a line, or everything if it failed."""
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if self.code:
            return f"{self.output.rstrip()}\n{self.title}: FAILED after {seconds}"
        counts = re.findall(r"\d+ passed.*?(?= in )", self.output)
        return f"{self.title}: done in {seconds}" + (f", {counts[-1]}" if counts else "")


@attrs.frozen
class Plan:
    """What a command runs: the steps one after the other, and beside them the builds."""

    steps: Sequence[Step]
    builds: Sequence[Step] = ()

    async def run(self) -> int:
        """Run everything; return 0 if all succeeded, else 1."""
        display = Display()
        running: list[Step] = []

        async def work(step: Step) -> None:
            running.append(step)
            await step.run()
            running.remove(step)
            display.say(step.result)

        async def build() -> bool:
            for step in self.builds:
                await work(step)
            return not any(step.code for step in self.builds)

        ticker = asyncio.create_task(display.show(running))
        built = asyncio.create_task(build())
        failed = False
        for step in self.steps:
            if step.needs_builds and not await built:
                display.say(f"{step.title}: not run, because its programs could not be built")
                failed = True
            else:
                await work(step)
                failed = failed or step.code != 0
        failed = not await built or failed
        ticker.cancel()
        return int(failed)


@attrs.define(eq=False)
class Display:
    """The progress line: overwritten on a terminal, else written at intervals."""

    _due: float = 0.0

    def say(self, text: str) -> None:
        self._write(f"{CLEAR if sys.stdout.isatty() else ''}{text}\n")

    async def show(self, running: Sequence[Step]) -> None:
        while True:
            line = " | ".join(step.progress for step in running)
            if sys.stdout.isatty():
                self._write(f"{CLEAR}{line[: shutil.get_terminal_size().columns - 1]}")
            elif line and time.monotonic() >= self._due:
                self._due = time.monotonic() + REPORT_EVERY
                self._write(f"{line}\n")
            await asyncio.sleep(0.5)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def lint() -> list[Step]:
    """Return the checks of format, lint and types."""
    steps = [
        Step("format", [BIN / "ruff", "format", "--check"]),
        Step("lint", [BIN / "ruff", "check"]),
        Step("types", [BIN / "mypy"]),
    ]
    return [*steps, Step("Dockerfile", [BIN / "hadolint", "Dockerfile"])] if (ROOT / "Dockerfile").exists() else steps


def pytest(title: str, selected: str, *options: str, needs_builds: bool = False, share: bool = False) -> Step:
    """Return a run of pytest; with `share` it tries a share of the examples."""
    argv = [str(BIN / "pytest"), "--no-header", "--tb=short", "-m", selected, *options]
    return Step(title, argv, {"TESTS": "fast" if share else ""}, needs_builds)


def building(*names: str) -> Step:
    """Return the step that builds what is missing of these programs."""
    return Step("programs", [BIN / "python", "-m", "tests.control_plane.build", *names])


def plan(command: str) -> Plan:
    """Return what a command of `make` runs."""
    unit = pytest("unit tests", UNIT, *SIDE_BY_SIDE, share=True)
    match command:
        case "fast":
            return Plan([*lint(), unit])
        case "test":
            main_job = pytest("main job on a real API server", MAIN_JOB, *A_FILE_EACH, needs_builds=True)
            return Plan([*lint(), unit, main_job], [building("etcd", "kube-apiserver")])
        case _:
            examples = pytest("all examples of the unit tests", ALL_EXAMPLES, *SIDE_BY_SIDE)
            others = pytest("all other tests", OTHERS, *A_FILE_EACH, needs_builds=True)
            more = [Step(name, [BIN / "python", "-m", module]) for name, module in OTHER_PROGRAMS.items()]
            return Plan([examples, others], [*more, building()])


OTHER_PROGRAMS: Final = {
    "Chromium": "tests.browser.install",
    "Prometheus's engine": "tests.monitoring.engine",
    "upstream's CEL": "tests.neuron.claims.oracle",
}


def main() -> int:
    """Run a command's plan; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.run")
    parser.add_argument("command", choices=("test", "test-all", "fast"))
    return asyncio.run(plan(parser.parse_args().command).run())


if __name__ == "__main__":
    sys.exit(main())
