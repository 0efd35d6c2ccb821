"""
Find Chromium for the tests of the page, or unpack Debian's: `python -m tests.browser.install`.

A browser on PATH is taken first. Otherwise apt downloads Debian's package and the libraries that this machine lacks,
and they are unpacked into the cache folder: nothing is installed, no rights are needed, and apt's own lists stay as
they are. Takes ten seconds once. Where there is neither a browser nor apt, the tests of the page are skipped, and say
so; a machine with apt on which this fails is an error.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import attrs

from tests.control_plane.binaries import cache_root

INSTALLED: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PACKAGES: Final = ("chromium-headless-shell", "fonts-dejavu-core")
PROGRAM: Final = "usr/lib/chromium/chromium-headless-shell"
LONGEST: Final = 300.0
"""Seconds after which apt is given up."""


class NoBrowserError(RuntimeError):
    """There is no browser, and this machine has no apt to get one."""


class InstallError(RuntimeError):
    """Apt is here, but Chromium cannot be had or does not start; the text has the reason."""


@attrs.frozen
class Browser:
    """A program, and what its environment needs beside ours."""

    program: Path
    environment: dict[str, str] = attrs.field(factory=dict)

    def works(self) -> bool:
        """Return whether it starts: a cached one does not after its machine has lost a library."""
        environment = os.environ | self.environment
        try:
            run = subprocess.run([self.program, "--version"], env=environment, capture_output=True, check=False)
        except OSError:
            return False
        return run.returncode == 0


def require() -> Browser:
    """
    Return a browser, unpacked first if need be.

    Raises:
        NoBrowserError: there is none, and no apt.
        InstallError: it cannot be had.
    """
    for name in INSTALLED:
        program = shutil.which(name)
        if program is not None and Browser(Path(program)).works():
            return Browser(Path(program))
    folder = cache_root() / "chromium"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another worker may be unpacking it
        browser = _unpacked(folder / "root")
        if not browser.works():
            _unpack(folder)
            browser = _unpacked(folder / "root")
        if not browser.works():
            listed = _output(["ldd", str(browser.program)], browser.environment).stdout
            lost = [line.strip() for line in listed.splitlines() if "not found" in line]
            raise InstallError(f"{browser.program} does not start: {'; '.join(lost) or 'for an unknown reason'}")
    return browser


def _unpacked(root: Path) -> Browser:
    libraries = sorted({str(file.parent) for file in root.glob("usr/lib/*-linux-*/**/*.so*")})
    environment = {"LD_LIBRARY_PATH": os.pathsep.join(libraries)}
    if (root / "usr/share/fonts").is_dir():
        environment["XDG_DATA_HOME"] = str(root / "usr/share")  # fontconfig looks for fonts there, too
    if (root / "etc/fonts/fonts.conf").is_file():
        environment["FONTCONFIG_PATH"] = str(root / "etc/fonts")
    return Browser(root / PROGRAM, environment)


def _unpack(folder: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NoBrowserError(f"no browser: PATH has none of {', '.join(INSTALLED)}, and there is no apt to get one")
    partial, apt = folder / "root.partial", folder / "apt"
    for old in (partial, apt, folder / "root"):
        shutil.rmtree(old, ignore_errors=True)
    for part in ("state/lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True)
    own = {
        "Dir::State": apt / "state",
        "Dir::State::status": "/var/lib/dpkg/status",
        "Dir::Cache": apt / "cache",
        "Debug::NoLocking": 1,
        "Acquire::Languages": "none",
        "Acquire::Retries": 3,
    }
    if os.geteuid() == 0:
        own["APT::Sandbox::User"] = "root"  # the user _apt may not write into our folder
    options = [word for key, value in own.items() for word in ("-o", f"{key}={value}")]
    _run(["apt-get", *options, "update"])
    _run(["apt-get", *options, "--yes", "--no-install-recommends", "--download-only", "install", *PACKAGES])
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(partial)])
    if not (partial / PROGRAM).exists():
        raise InstallError(f"the packages {', '.join(PACKAGES)} have no {PROGRAM}")
    partial.replace(folder / "root")
    shutil.rmtree(apt)


def _run(command: list[str]) -> None:
    try:
        run = _output(command, {"LC_ALL": "C"})
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"`{' '.join(command)}` did not end within {LONGEST:.0f} s") from error
    if run.returncode:
        raise InstallError(f"`{' '.join(command)}` failed with {run.returncode}:\n{run.stderr[-2000:]}")


def _output(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | environment
    return subprocess.run(command, timeout=LONGEST, env=environment, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{require().program}\n")
    except NoBrowserError as error:
        sys.stdout.write(f"{error}: the tests of the page will be skipped\n")
    except InstallError as error:
        sys.exit(f"chromium: {error}")
