"""
Runs the instructions of the Dockerfile in a folder, without a container engine and without a registry of images.

The folder takes the place of the image's root: absolute paths in the instructions are moved into it. Python is that of
the image's version, if the machine has it. Isolates nothing: the commands see the whole machine.
"""

import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

ROOT: Final = Path(__file__).parents[2]
MOVED: Final = re.compile(r"(?<![\w./*-])/(?=(?:opt|build|source|wheels|usr)\b)")
NOT_COPIED: Final = shutil.ignore_patterns("test", "idlelib", "site-packages", "*.a")
USER: Final = 65532


@attrs.frozen
class Instruction:
    """One instruction of a Dockerfile: its keyword, and the rest with its lines joined."""

    keyword: str
    text: str


@attrs.define(eq=False)
class Image:
    """
    What an image has.

    Attributes:
        root: the folder that takes the place of `/`.
        environment: the variables of its processes, with moved paths.
        entry_point: what a container runs, with arguments.
    """

    root: Path
    environment: dict[str, str]
    entry_point: list[str] = attrs.field(factory=list)

    def moved(self, text: str) -> str:
        """Return the text with the image's absolute paths moved into the folder."""
        return MOVED.sub(f"{self.root}/", text)

    def command(self, *arguments: str) -> list[str]:
        """Return what a container with these arguments runs."""
        program = shutil.which(self.entry_point[0], path=self.environment["PATH"])
        assert program is not None
        return [program, *self.entry_point[1:], *arguments]

    def process(self) -> dict[str, Any]:
        """
        Return the options of a process as in a container: unprivileged, in a root that it cannot write to.

        Only a privileged process can change its user; another one keeps its own, which cannot write there either.
        """
        user = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
        return {"env": self.environment | {"HOME": "/", "TMPDIR": str(self.root)}, "cwd": self.root, **user}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the entry point to its end."""
        command = self.command(*arguments)
        return subprocess.run(command, **self.process(), capture_output=True, text=True, check=False, timeout=120)


def instructions() -> Iterator[Instruction]:
    """Yield the instructions of the Dockerfile."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        keyword, _, text = line.partition(" ")
        if keyword:
            yield Instruction(keyword, text.strip())


def image_version() -> str:
    """Return the image's version of Python, such as 3.13."""
    base = next(step.text for step in instructions() if step.keyword == "ARG" and step.text.startswith("BASE="))
    return str(re.findall(r"python:(\d+\.\d+)", base)[0])


def image_python() -> Path:
    """Return a Python of the image's version, from PATH or pyenv, else the one that runs."""
    version = image_version()
    for candidate in (f"python{version}", *map(str, Path.home().glob(f".pyenv/versions/{version}*/bin/python3"))):
        program = shutil.which(candidate)
        if program:
            asked = [program, "-c", "import ensurepip, venv, sys; print(sys._base_executable)"]
            answer = subprocess.run(asked, capture_output=True, text=True, check=False)
            if answer.returncode == 0:  # a shim of pyenv's may lead nowhere
                return Path(answer.stdout.strip())
    return Path(sys.base_prefix) / "bin" / "python3"


def build(folder: Path) -> Image:
    """Run all instructions in an empty folder that every user can read; the image's root will be `root` in it."""
    base = _base_environment(folder / "python")
    image = Image(folder / "root", base)
    working = image.root
    for step in instructions():
        match step.keyword:
            case "FROM":
                image = _next_stage(folder, base)
                working = image.root
            case "WORKDIR":
                working = Path(image.moved(step.text))
                working.mkdir(parents=True)
            case "COPY":
                _copy(image, shlex.split(step.text), working)
            case "RUN":
                shell = ["/bin/sh", "-ec", image.moved(step.text)]
                subprocess.run(shell, cwd=working, env=image.environment, check=True)
            case "ENV":
                pairs = (word.partition("=") for word in shlex.split(image.moved(step.text)))
                image.environment |= {
                    name: string.Template(value).substitute(image.environment) for name, _, value in pairs
                }
            case "ENTRYPOINT":
                image.entry_point = json.loads(step.text)
            case "ARG" | "CMD" | "EXPOSE" | "LABEL" | "USER":
                pass  # the user is always the unprivileged one, and the others are text: `test_dockerfile` reads it
            case _:
                raise NotImplementedError(step.keyword)
    return image


def set_writable(folder: Path, *, writable: bool) -> None:
    """Take away every right to write in the folder, or let the owner write again, so that it can be removed."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o200 if writable else mode & 0o555)


def _base_environment(folder: Path) -> dict[str, str]:
    """Make a folder with `python` and pip, in place of the base image, and return the variables of its processes."""
    python = image_python()
    prefix = python.parents[1]
    environment = {
        key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_")) or "proxy" in key
    }
    environment |= {"LANG": "C.UTF-8", "PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    if not all(parent.stat().st_mode & 0o001 for parent in (prefix, *prefix.parents)):  # as below /root
        shutil.copytree(prefix, folder / "copy", symlinks=True, ignore=NOT_COPIED)
        python = folder / "copy" / "bin" / python.name
        environment["LD_LIBRARY_PATH"] = str(folder / "copy" / "lib")
    subprocess.run([python, "-m", "venv", folder], env=environment, check=True)
    return environment


def _next_stage(folder: Path, environment: Mapping[str, str]) -> Image:
    """Begin a stage with an empty root; the root of the stage before, if there was one, becomes `build`."""
    root = folder / "root"
    if root.exists():
        root.rename(folder / "build")
    root.mkdir()
    return Image(root, dict(environment))


def _copy(image: Image, words: list[str], working: Path) -> None:
    """Copy from the source, as far as .dockerignore lets it, or move from the stage `build` to the same path."""
    if words[0] == "--from=build":
        assert words[1] == words[2]
        target = image.root / words[2].removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        (image.root.parent / "build" / words[1].removeprefix("/")).rename(target)
        return
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    *sources, target_name = words
    for source in sources:
        assert source in allowed, f"{source} is not in the build context"
        target = working / target_name / (Path(source).name if target_name.endswith("/") else "")
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)
