"""The user's own kubectl, and what it makes of the folders in manifests/, with components added as in the README."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

from tests.control_plane.rest import Object

ROOT: Final = Path(__file__).parents[2]
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
    """Return the objects of a kustomization by `Kind/name`."""
    return by_name(kubectl("kustomize", folder))


def customized(road: str, folder: Path, *components: str) -> Path:
    """
    Copy manifests/ and add components to one of its kustomizations, as the README tells users to do.

    Args:
        road: the kustomization's folder: `.` or `default-scheduler`.
        folder: an empty folder, or one that does not exist.
        components: their names.

    Returns:
        The copy of the kustomization's folder.
    """
    copy = shutil.copytree(ROOT / "manifests", folder / "manifests", dirs_exist_ok=True) / road
    up = "../" * len(Path(road).parts)
    text = (ROOT / "manifests" / road / "kustomization.yaml").read_text()
    kustomization = yaml.safe_load(text)
    kustomization["components"] = [
        *kustomization.get("components", []),
        *(f"{up}components/{name}" for name in components),
    ]
    (copy / "kustomization.yaml").write_text(json.dumps(kustomization))
    return copy
