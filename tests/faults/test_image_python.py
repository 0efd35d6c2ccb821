"""The same faults for a process that runs in the Python of the image, with the packages that the image has."""

import subprocess
from pathlib import Path

import pytest

from tests.control_plane.server import ControlPlane
from tests.end_to_end.claims import clear_storage
from tests.end_to_end.process import ACQUIRED, ROOT, run_scheduler
from tests.end_to_end.workload import clear
from tests.faults.commit_path import CommitPath, cases
from tests.faults.history import recording
from tests.faults.proxy import run_proxy
from tests.faults.test_commit_path import SHORT_TRIES
from tests.support.dockerfile import image_python, image_version

pytestmark = [pytest.mark.image, pytest.mark.timeout(600)]
REQUESTS = ("binding", "read-back", "disruption", "claim")
FAULTS = ("401-before", "409-after", "429-retry-after-before", "cut-before", "cut-after", "silence-after", "half-after")


@pytest.fixture(scope="module")
def image_interpreter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a Python of the image's version with the packages that the image has."""
    python = image_python()
    asked = [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    if version != image_version():
        pytest.skip(f"Python {image_version()}, which the image runs, is neither on PATH nor under pyenv")
    folder = tmp_path_factory.mktemp("image-python")
    subprocess.run([python, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    pip: list[str | Path] = [own, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--require-hashes"]
    subprocess.run([*pip, "-r", ROOT / "requirements" / "run.txt"], check=True)
    return own


async def test_faults_in_the_images_python(
    fault_plane: ControlPlane, fault_account: Path, controllers: None, image_interpreter: Path
) -> None:
    """All pods are bound once, the oracles have no complaint, and it ends well."""
    api = fault_plane.admin
    await clear(api)
    async with (
        recording(api) as history,
        run_proxy(fault_plane) as proxy,
        run_scheduler(fault_account, f"--master={proxy.url}", *SHORT_TRIES, python=image_interpreter) as scheduler,
    ):
        await scheduler.line(ACQUIRED)
        path = CommitPath(api, proxy, scheduler, cases(REQUESTS, FAULTS))
        await path.run()
        await history.complete(api)
        assert await scheduler.stop() == 0
    bound = history.bound()
    assert {case.name: bound[path.pods[case.name]["metadata"]["uid"]] for case in path.cases} == {
        case.name: 1 for case in path.cases
    }
    assert history.violations() == []
    assert "Traceback" not in scheduler.log
    await clear_storage(api)
    await clear(api)
