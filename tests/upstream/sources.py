"""Where the Go sources of a pinned release of Kubernetes are: in the module cache of Go, which fills it if needed."""

import json
import re
import subprocess
from pathlib import Path
from typing import Final

import attrs

from tests.control_plane.binaries import MODULES
from tests.control_plane.build import go_environment

_ASIDE: Final = re.compile(r"_test\.go$|/testing/|/test_utils?\.go$|/fake_|/metrics/")
NEEDED: Final = ("kubernetes", "kube-scheduler", "component-helpers", "apiserver")


@attrs.frozen
class Sources:
    """
    The sources of a release.

    Attributes:
        release: such as `1.37`.
        version: the patch release that is pinned, such as `v1.37.2`.
        folders: by the name of the module under k8s.io.
    """

    release: str
    version: str
    folders: dict[str, Path]

    def files(self, module: str, folder: str) -> list[Path]:
        """Return the Go files in a folder of a module and below it, without those for tests and for metrics."""
        root = self.folders[module] / folder
        found = [root] if root.is_file() else sorted(root.rglob("*.go"))
        return [file for file in found if not _ASIDE.search(str(file.relative_to(self.folders[module])))]

    def text(self, module: str, file: str) -> str:
        """Return one file, empty where this release has none."""
        path = self.folders[module] / file
        return path.read_text() if path.exists() else ""


def sources(release: str) -> Sources:
    """
    Return the sources of a minor release that `tests/control_plane/modules` pins, downloaded if need be.

    Raises:
        subprocess.CalledProcessError: Go cannot download them.
    """
    environment = go_environment()
    command = [environment["GO"], "mod", "download", "-json", *(f"k8s.io/{name}" for name in NEEDED)]
    folder = MODULES / f"kubernetes-{release}"
    run = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    decoder, text, found = json.JSONDecoder(), run.stdout.strip(), {}
    while text:
        module, end = decoder.raw_decode(text)
        found[module["Path"].removeprefix("k8s.io/")] = module
        text = text[end:].lstrip()
    version = found["kubernetes"]["Version"]
    return Sources(release, version, {name: Path(module["Dir"]) for name, module in found.items()})
