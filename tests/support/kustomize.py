"""The user's own kubectl, and what it makes of the folders in manifests/, with the user's own kustomization on top."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

from neuron_scheduler import __version__
from tests.control_plane.rest import Object

ROOT: Final = Path(__file__).parents[2]
YOURS: Final = ("kustomization.yaml", "config.yaml")
"""What the person who installs writes into manifests/. Git ignores the two files, and so do the tests."""
KUBECTL: Final = Path(sys.executable).with_name("kubectl")


def kubectl(*arguments: str | Path) -> str:
    """Run kubectl in the project's folder; return what it prints."""
    done = subprocess.run([KUBECTL, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def by_name(text: str) -> dict[str, Object]:
    """Return the objects of a YAML text by `Kind/name`."""
    return {f"{item['kind']}/{item['metadata']['name']}": item for item in yaml.safe_load_all(text)}


def rendered(folder: str | Path) -> dict[str, Object]:
    """Return the objects of a kustomization by `Kind/name`, its ConfigMap without the hash in its name."""
    return by_name(re.sub(r"(neuron-scheduler-config)-[a-z0-9]{10}\b", r"\1", kubectl("kustomize", folder)))


def copied(folder: Path) -> Path:
    """Copy manifests/ into a folder, as it is in a fresh clone."""

    def yours(source: str, names: list[str]) -> set[str]:
        return {*YOURS} & {*names} if Path(source) == ROOT / "manifests" else set()

    return Path(shutil.copytree(ROOT / "manifests", folder / "manifests", ignore=yours, dirs_exist_ok=True))


def customized(road: str, folder: Path, *components: str) -> Path:
    """
    Copy manifests/ and write a kustomization of one's own there, as the README tells users to do.

    Args:
        road: `my-scheduler` or `default-scheduler`.
        folder: an empty folder, or one that does not exist.
        components: their names.

    Returns:
        The folder of that kustomization.
    """
    copy = copied(folder)
    text = (copy / "kustomization.example.yaml").read_text()
    written = {
        "- my-scheduler ": f"- {road} ",
        "REGISTRY/": "",
        "newTag: TAG": f"newTag: {__version__}",
        "components: []": f"components: [{', '.join(f'components/{name}' for name in components)}]",
    }
    for example, own in written.items():
        assert example in text
        text = text.replace(example, own)
    (copy / "kustomization.yaml").write_text(text)
    return copy
