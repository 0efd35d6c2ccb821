"""The plugin `kubectl neuron` as it is installed: with krew's archive and manifest, and with what pipx and uv do."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from neuron_scheduler import __version__
from tests.capture.test_files import a_list, node, pod
from tests.support.dockerfile import ROOT, image_python
from tests.support.kubectl import KUBECTL

KREW: Final = ROOT / "manifests" / "krew"
URL: Final = f"https://example.org/releases/v{__version__}"


def run(
    *command: str | Path, environment: Mapping[str, str] | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a program, and check its exit code."""
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def check_manifest(manifest: Any) -> None:
    """Check the rules of krew's `internal/index/validation`, and of its index: plain names, one line, known keys."""
    assert manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert spec.keys() == {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert spec["version"] == f"v{__version__}"
    assert 0 < len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    assert max(map(len, (spec["description"] + spec["caveats"]).splitlines())) <= 80
    for platform in spec["platforms"]:
        assert platform.keys() == {"selector", "uri", "sha256", "bin"}
        assert platform["selector"].keys() == {"matchExpressions"}
        for expression in platform["selector"]["matchExpressions"]:
            assert expression["key"] in ("os", "arch")
            assert set(expression["values"]) <= {"linux", "darwin"}


def test_the_manifest() -> None:
    """It has what krew reads, and places for what only a release has."""
    manifest = yaml.safe_load((KREW / "neuron.yaml").read_text())
    check_manifest(manifest)
    assert [p["sha256"] for p in manifest["spec"]["platforms"]] == ["SHA256"]


def test_without_python(tmp_path: Path) -> None:
    """The launcher says what it needs, in one line, and 2."""
    (tmp_path / "neuron_scheduler-0-py3-none-any.whl").write_text("")
    launcher = tmp_path / "kubectl-neuron"
    launcher.write_bytes((KREW / "kubectl-neuron").read_bytes())
    launcher.chmod(0o755)
    (tmp_path / "link").symlink_to("kubectl-neuron")
    environment = {"KUBECTL_NEURON_PYTHON": "none", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = run(tmp_path / "link", "why", code=2, environment=environment)
    assert done.stderr.startswith("kubectl neuron: needs Python 3.11 or newer with venv and pip on PATH")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "cache").exists()


@pytest.mark.image
@pytest.mark.timeout(900)
def test_built_and_installed_as_krew_does(tmp_path: Path) -> None:
    """The archive has the manifest's digest; unpacked and linked, kubectl runs the plugin."""
    run("sh", KREW / "build.sh", URL, tmp_path / "out", environment={"PYTHON": sys.executable})
    archive = tmp_path / "out" / "kubectl-neuron.tar.gz"
    manifest = yaml.safe_load((tmp_path / "out" / "neuron.yaml").read_text())
    check_manifest(manifest)
    (platform,) = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"{URL}/{archive.name}"

    store, bin_folder = tmp_path / "store" / "neuron" / manifest["spec"]["version"], tmp_path / "bin"
    store.mkdir(parents=True)
    bin_folder.mkdir()
    with tarfile.open(archive) as tar:
        tar.extractall(store, filter="data")
        assert "LICENSE" in tar.getnames()
    (bin_folder / "kubectl-neuron").symlink_to(store / platform["bin"])

    environment = {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "KUBECTL_NEURON_PYTHON": str(image_python()),
    }
    waiting = [node(), pod("large", neuron=16, phase="Pending"), pod("holder", "0", neuron=1, nodeName="trn1-a")]
    (tmp_path / "dump.json").write_text(json.dumps(a_list(waiting)))
    question = ("neuron", "why", "large", "--from", str(tmp_path / "dump.json"))
    first = run(KUBECTL, *question, code=1, environment=environment)
    assert "0/1 nodes are available: 1 Insufficient aws.amazon.com/neuron." in " ".join(first.stdout.split())
    assert "installing its Python packages" in first.stderr
    again = run(KUBECTL, *question, code=1, environment=environment)
    assert (again.stdout, again.stderr) == (first.stdout, "")

    (installed,) = (tmp_path / "cache" / "kubectl-neuron").iterdir()
    for program in ("neuron-scheduler", "kubectl-neuron"):  # as pipx and uv link them
        out = run(installed / "bin" / program, "--version").stdout
        assert out == f"{'kubectl neuron' if program == 'kubectl-neuron' else program} {__version__}\n"
