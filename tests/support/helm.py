"""Helm, with a home of its own, so that a test reads and writes nothing of the user's."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import attrs

from tests.control_plane.binaries import require
from tests.control_plane.rest import Object
from tests.support.kustomize import ROOT, by_name

CHART: Final = ROOT / "manifests" / "chart"
RELEASE: Final = "neuron-scheduler"


@attrs.frozen
class Helm:
    """
    A user's Helm.

    Attributes:
        home: a folder for its caches and settings.
        kubeconfig: how it reaches the cluster; a path where nothing is for no cluster.
    """

    home: Path
    kubeconfig: Path = Path("/nonexistent")

    def run(self, *arguments: str | Path) -> str:
        """Run a command that succeeds, and return what it prints."""
        done = self._run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(self, *arguments: str | Path) -> str:
        """Run a command that fails, and return its complaint."""
        done = self._run(*arguments)
        assert done.returncode != 0, done.stdout
        return done.stderr

    def rendered(self, *arguments: str | Path) -> dict[str, Object]:
        """Return the objects of `helm template` for our chart by `Kind/name`."""
        return by_name(self.run("template", RELEASE, CHART, *arguments))

    def _run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        homes = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        environment = os.environ | homes | {"KUBECONFIG": str(self.kubeconfig)}
        command = [require("helm"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)


def values(**settings: Any) -> list[str]:
    """Return `--set-json` for each setting; `__` becomes `.`."""
    return [f"--set-json={name.replace('__', '.')}={json.dumps(value)}" for name, value in settings.items()]
