"""The Dockerfile agrees with its linter, the settings and the Deployment; `test_image.py` runs it."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml

from neuron_scheduler.settings.config import Config
from tests.support.dockerfile import ROOT, instructions

STEPS = list(instructions())


def texts(keyword: str) -> list[str]:
    """Return what the instructions with this keyword say."""
    return [step.text for step in STEPS if step.keyword == keyword]


def test_the_linter_has_no_complaint() -> None:
    """Hadolint accepts it."""
    subprocess.run([Path(sys.executable).with_name("hadolint"), ROOT / "Dockerfile"], check=True)


def test_the_build_context_has_what_is_copied_and_nothing_else() -> None:
    """.dockerignore lets exactly the copied files through."""
    copied = {word for text in texts("COPY") if "--from" not in text for word in text.split()[:-1]}
    assert copied == set(re.findall("^!(.*)", (ROOT / ".dockerignore").read_text(), re.MULTILINE))


def test_the_user_is_the_deployments() -> None:
    """The image and the Deployment name the same unprivileged user."""
    deployment = yaml.safe_load((ROOT / "manifests" / "base" / "deployment.yaml").read_text())
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    assert texts("USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]


def test_what_runs_and_its_ports() -> None:
    """Without arguments the scheduler runs; the ports of its endpoints and of the extender are named."""
    assert texts("ENTRYPOINT") + texts("CMD") == ['["neuron-scheduler"]', '["run"]']
    assert texts("EXPOSE") == [f"{Config().port} {Config().secure_port} 12345"]


def test_what_is_installed_is_locked() -> None:
    """Every installation names hashes, or takes the wheel that was just built; the base is named by its digest."""
    assert re.search(r"^BASE=python:\S+@sha256:[0-9a-f]{64}$", texts("ARG")[0])
    installations = [part for text in texts("RUN") for part in text.split("&&") if " install" in part]
    assert len(installations) == 3
    assert [part for part in installations if "--require-hashes" not in part and "--no-index" not in part] == []


def test_the_labels() -> None:
    """They name the project as `pyproject.toml` does, and what the build is told."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (text,) = texts("LABEL")
    labels = dict(word.removeprefix("org.opencontainers.image.").split("=", 1) for word in shlex.split(text))
    assert labels == {
        "title": project["name"],
        "description": project["description"],
        "licenses": project["license"],
        "base.name": "${BASE}",
        "source": "${SOURCE}",
        "version": "${VERSION}",
        "revision": "${REVISION}",
    }
