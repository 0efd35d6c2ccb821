"""The steps of the Dockerfile run, and what they make is complete, listed, licensed, and runs unprivileged."""

import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import anyio
import pytest

from sandbox import fleet
from sandbox.server import ApiServer
from tests.control_plane.server import free_port
from tests.support.dockerfile import ROOT, Image, build, image_python, set_writable
from tests.support.sandbox_api import connect

pytestmark = [pytest.mark.image, pytest.mark.timeout(900)]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Build the image in a folder that every user can read, and take away the right to write there."""
    folder = Path(tempfile.mkdtemp(prefix="image-"))
    folder.chmod(0o755)
    image = build(folder)
    set_writable(folder, writable=False)
    yield image
    set_writable(folder, writable=True)
    shutil.rmtree(folder)


def normal(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed(image: Image) -> dict[str, Distribution]:
    """Return the packages in the image by name."""
    (packages,) = image.root.glob("opt/neuron-scheduler/lib/python*/site-packages")
    return {normal(package.name): package for package in distributions(path=[str(packages)])}


def bill_of_materials(image: Image) -> Any:
    return json.loads((image.root / "usr/share/doc/neuron-scheduler/sbom.cdx.json").read_text())


def test_the_image_has_the_locked_packages_and_nothing_else(image: Image) -> None:
    """The versions of `requirements/run.txt` and ours are there; pip and the build's tools are not."""
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements/run.txt").read_text(), re.MULTILINE))
    assert {name: package.version for name, package in installed(image).items()} == locked | {
        "neuron-scheduler": PROJECT["version"]
    }
    assert {path.name for path in image.root.iterdir()} == {"opt", "usr"}


def test_the_sbom_lists_exactly_the_packages(image: Image) -> None:
    """CycloneDX, with our package as the subject, the others as components, and a licence for each."""
    bill = bill_of_materials(image)
    assert bill["bomFormat"] == "CycloneDX"
    subject = bill["metadata"]["component"]
    components = [subject, *bill["components"]]
    listed = {normal(component["name"]): component["version"] for component in components}
    assert listed == {name: package.version for name, package in installed(image).items()}
    assert len(components) == len(listed)
    assert (subject["name"], subject["licenses"][0]["license"]["id"]) == ("neuron-scheduler", "MIT-0")
    assert [component["name"] for component in components if not component.get("licenses")] == []


def test_every_package_has_the_text_of_its_licence(image: Image) -> None:
    """The texts are in the folder that the README names."""
    folder = image.root / "usr/share/doc/neuron-scheduler/licenses"
    texts = [path for path in folder.rglob("*") if path.is_file()]
    assert {normal(re.split(r"-\d", path.relative_to(folder).parts[0])[0]) for path in texts} == set(installed(image))
    assert all(path.stat().st_size > 100 for path in texts)
    assert (
        folder.joinpath(f"neuron_scheduler-{PROJECT['version']}.dist-info/licenses/LICENSE").read_text()
        == (ROOT / "LICENSE").read_text()
    )


def test_the_files_of_the_page(image: Image) -> None:
    """The wheel has them, although they are no Python."""
    (folder,) = image.root.glob("opt/neuron-scheduler/lib/python*/site-packages/neuron_scheduler/serving/files")
    source = ROOT / "neuron_scheduler/serving/files"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }


def test_the_entry_point_runs_unprivileged(image: Image) -> None:
    """It needs no right to write anywhere, and writes nothing."""
    before = {str(path) for path in image.root.rglob("*")}
    result = image.run("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert PROJECT["version"] in result.stdout
    assert {str(path) for path in image.root.rglob("*")} == before


@contextmanager
def running(image: Image, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the entry point, and kill it at the end."""
    with subprocess.Popen(image.command(*arguments), **image.process()) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_a_pod_is_scheduled(image: Image) -> None:
    """The image's scheduler finds all that it needs in the image, binds a pod, and ends when it is asked to."""
    async with ApiServer(termination_limit=0).serving() as server:
        server.create(fleet.node("trn1-a", "trn1.32xlarge"))
        flags = (f"--master={server.url}", f"--port={free_port()}", "--bind-address=127.0.0.1", "--leader-elect=false")
        async with connect(server.url) as api, api.watch("pods") as watch:
            limits = {"aws.amazon.com/neuron": "4"}
            container = {"name": "main", "image": "registry.example/app:1", "resources": {"limits": limits}}
            await api.pod("p", schedulerName="my-scheduler", containers=[container])
            with running(image, "run", *flags) as process:
                while "nodeName" not in (await api.got("pods/p"))["spec"]:
                    assert await watch.next(within=60) is not None
                process.terminate()
                assert await anyio.to_thread.run_sync(process.wait, 60) == 0


@pytest.mark.parametrize("lock", ["run", "image"])
def test_the_packages_exist_for_both_architectures(tmp_path: Path, lock: str) -> None:
    """The locks have wheels for amd64 and arm64; nothing is compiled."""
    python = str(image_python())
    for machine in ("x86_64", "aarch64"):
        platforms = [f"--platform=manylinux_{glibc}_{machine}" for glibc in ("2_17", "2_28", "2_34")]
        options = [*platforms, "--dry-run", f"--target={tmp_path}", "--quiet", "--only-binary=:all:", "--no-deps"]
        requirements = ["--require-hashes", f"--requirement={ROOT}/requirements/{lock}.txt"]
        result = subprocess.run(
            [python, "-m", "pip", "install", *options, *requirements], capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
