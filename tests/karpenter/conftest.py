"""One API server with Karpenter's kinds for the tests of a module, and a Karpenter of its own for each."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tests.control_plane.objects import wipe
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane, run_control_plane
from tests.end_to_end.fence import not_in_force
from tests.end_to_end.process import until
from tests.karpenter.karpenter import (
    NODE_CLAIMS,
    NODE_CLASSES,
    NODE_POOLS,
    Karpenter,
    define_kinds,
    run_karpenter,
)


@pytest.fixture(scope="module")
async def karpenter_plane() -> AsyncIterator[ControlPlane]:
    """Run etcd and kube-apiserver, with the kinds of Karpenter's module."""
    async with run_control_plane() as plane:
        await define_kinds(plane.admin)
        yield plane


@pytest.fixture
async def karpenter_api(karpenter_plane: ControlPlane) -> RestClient:
    """
    Return the administrator's client of a cluster that is empty before any Karpenter is started.

    The policies of the test before are deleted, and an API server may apply them some seconds longer.
    """
    await wipe(karpenter_plane.admin, NODE_CLAIMS, NODE_POOLS, NODE_CLASSES)
    await until(partial(not_in_force, karpenter_plane))
    return karpenter_plane.admin


@pytest.fixture
async def karpenter(
    request: pytest.FixtureRequest, karpenter_plane: ControlPlane, karpenter_api: RestClient, tmp_path: Path
) -> AsyncIterator[Karpenter]:
    """Run Karpenter in an empty cluster for one test (`param`: flags); pytest shows its log beside a failure."""
    async with run_karpenter(karpenter_plane, tmp_path, *getattr(request, "param", ())) as karpenter:
        yield karpenter
        print(karpenter.tail())  # noqa: T201 - pytest shows it beside a failure
