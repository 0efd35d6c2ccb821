"""
The control plane as pytest fixtures: one API server for all tests of a worker, and a clean one for each test.

A missing program is an error and never a skip: a suite that passes without its control plane proves nothing.
"""

import os
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.control_plane.audit import audit_flags
from tests.control_plane.binaries import KUBERNETES_VERSION, RELEASE
from tests.control_plane.build import BuildError, build_missing
from tests.control_plane.objects import wipe
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, run_control_plane

TESTS: Final = Path(__file__).parents[1]
# Seconds of the files that take longest, in whole tens: what is begun last should be short. Others count as 5.
SECONDS: Final = {
    "differential/test_kube_scheduler.py": 70,
    "end_to_end/test_chart.py": 80,
    "end_to_end/test_extender.py": 70,
    "end_to_end/test_migrating.py": 90,
    "end_to_end/test_readme.py": 90,
    "end_to_end/test_reinstall.py": 70,
    "end_to_end/test_replicas.py": 50,
    "end_to_end/test_restart.py": 40,
    "end_to_end/test_runbook.py": 140,
    "faults/test_commit_path.py": 70,
    "faults/test_watches.py": 30,
    "karpenter/test_capacity_requests.py": 150,
    "karpenter/test_karpenter.py": 60,
    "monitoring/test_rules.py": 40,
    "neuron/claims/test_cel_upstream.py": 20,
    "sandbox/test_demo_serving.py": 30,
}


# Fixtures that are or have a control plane.
PLANES: Final = {"control_plane", "plane", "fenced_plane", "installed", "karpenter_plane"}


def fixtures_of(item: pytest.Item) -> set[str]:
    """Return the names of the fixtures that a test uses, also through others."""
    return set(getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Mark the tests that use a control plane, so that `-m` can select; run them last, the longest files first.

    Files with an API server of their own come before those that share one: it starts late, and ends with the last test.
    """
    of_file = defaultdict[Path, list[pytest.Item]](list)
    for item in items:
        if PLANES & fixtures_of(item):
            item.add_marker("control_plane")
        of_file[item.path].append(item)

    def rank(path: Path) -> tuple[bool, bool, int]:
        marked = [item for item in of_file[path] if item.get_closest_marker("control_plane")]
        shared = any("control_plane" in fixtures_of(item) for item in marked)
        return bool(marked), shared, -SECONDS.get(path.relative_to(TESTS).as_posix(), 5) if marked else 0

    items[:] = [item for path in sorted(of_file, key=rank) for item in of_file[path]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the programs that `make` names in BUILD, if a chosen test has a control plane."""
    names = os.environ.get("BUILD", "").split()
    if names and any(item.get_closest_marker("control_plane") for item in session.items):
        capture = session.config.pluginmanager.getplugin("capturemanager")
        try:
            with capture.global_and_fixture_disabled():
                build_missing(names)
        except BuildError as error:
            pytest.exit(f"control plane: {error}", 1)


def pytest_report_header() -> str:
    """Say which release the tests with a control plane run on."""
    return f"Kubernetes {KUBERNETES_VERSION} (KUBERNETES={RELEASE})"


@pytest.fixture(scope="session")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the API server's audit log of the scheduler's ServiceAccount, one JSON object a line."""
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="session")
async def control_plane(audit_log: Path) -> AsyncIterator[ControlPlane]:
    """Run etcd and kube-apiserver, which all tests of the worker share; a module finds what the one before it left."""
    async with run_control_plane(api_server_flags=audit_flags(audit_log)) as plane:
        yield plane


@pytest.fixture
async def cluster_api(control_plane: ControlPlane) -> RestClient:
    """Return the administrator's client of a cluster without nodes, pods, leases, events and policies."""
    await wipe(control_plane.admin)
    return control_plane.admin
