"""Whether a pod has been left behind is judged from what was seen, with the enumeration of legal sets."""

import random
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.endurance.churn import Churn, devices_of, sizes_of
from benchmarks.endurance.pace import Pace
from benchmarks.replicas.plane import Cluster
from neuron_scheduler.model.neuron_request import Unit
from tests.control_plane.objects import pod_manifest
from tests.control_plane.rest import RestClient
from tests.control_plane.server import ControlPlane


def pod(name: str, *, ids: str = "", node: str = "", **size: int) -> Any:
    """Return a pod, bound if it has a node."""
    made = pod_manifest(name, annotations={"AWS_NEURON_IDS": ids} if ids else {}, **size)  # type: ignore[arg-type]  # by keyword
    made["metadata"] |= {"uid": name, "resourceVersion": "1"}
    made["spec"] |= {"nodeName": node} if node else {}
    return made


@pytest.fixture
async def churn(tmp_path: Path) -> Churn:
    """Return a churn on one node of 16 devices, and one of a single device, without a server."""
    plane = ControlPlane(tmp_path)
    plane.admin = RestClient("", "", None)  # type: ignore[arg-type]  # it is never opened
    made = Churn(Cluster(plane, tmp_path), random.Random(1), Pace(10.0))
    made.nodes = ["trn1-32xlarge-0", "inf2-xlarge-0"]
    return made


def see(churn: Churn, kind: str, *pods: Any) -> None:
    """Let it observe these pods."""
    for each in pods:
        churn.observer._take(kind, each)


async def test_a_pod_that_waits_although_it_fits_is_left_behind(churn: Churn) -> None:
    """Eight of 16 devices are in use: four fit, and a whole node does not."""
    see(churn, "MODIFIED", pod("held", neuron=8, ids="0,1,2,3,4,5,6,7", node="trn1-32xlarge-0"))
    see(churn, "ADDED", pod("four", neuron=4), pod("all", neuron=16))
    assert churn.left_behind() == [(Unit.DEVICE, 4)]
    see(churn, "DELETED", pod("held", neuron=8, ids="0,1,2,3,4,5,6,7", node="trn1-32xlarge-0"))
    assert churn.left_behind() == [(Unit.DEVICE, 4), (Unit.DEVICE, 16)]
    churn.nodes = ["inf2-xlarge-0"]
    assert churn.left_behind() == []


async def test_a_core_fits_beside_a_core_of_the_same_device(churn: Churn) -> None:
    """The only device of the small node is in use in part, so no device is free, but a core is."""
    churn.nodes = ["inf2-xlarge-0"]
    see(churn, "MODIFIED", pod("one", neuroncore=1, ids="0", node="inf2-xlarge-0"))
    see(churn, "ADDED", pod("core", neuroncore=1), pod("device", neuron=1))
    assert churn.left_behind() == [(Unit.CORE, 1)]


async def test_pods_that_are_bound_or_gone_do_not_wait(churn: Churn) -> None:
    """And only existing pods are alive."""
    see(churn, "ADDED", pod("a", neuron=1), pod("b", neuron=1), pod("c", neuron=1))
    see(churn, "MODIFIED", pod("a", neuron=1, ids="0", node="trn1-32xlarge-0"))
    see(churn, "DELETED", pod("b", neuron=1))
    assert (list(churn.pending), churn.alive) == (["c"], 2)
    assert churn.history.wrong == []


async def test_pods_run_for_longer_by_a_rest(churn: Churn) -> None:
    """So the kubelets are not late after it, and the pace is kept."""
    see(churn, "ADDED", pod("a", neuron=1))
    see(churn, "MODIFIED", pod("a", neuron=1, ids="0", node="trn1-32xlarge-0"))
    churn._ends = [(time.perf_counter() - 1.0, "a", "trn1-32xlarge-0")]
    late = churn._kubelets_behind()
    with churn.rest():
        assert churn._kubelets_behind() == 0.0
        churn._ends = [(time.perf_counter(), "a", "trn1-32xlarge-0")]
    assert late >= 1.0
    assert churn._kubelets_behind() < late


def test_what_pods_ask_for_is_counted_in_devices_and_shown() -> None:
    """A core counts half a device."""
    assert devices_of((Unit.CORE, 2)) + devices_of((Unit.DEVICE, 4)) == 5
    assert sizes_of([(Unit.CORE, 1), (Unit.DEVICE, 4)]) == "1 core, 4 devices"
