"""Simulated nodes report what real ones would."""

import pytest

from neuron_scheduler.commands.check.subjects.api_server import NEWEST
from sandbox import fleet
from sandbox.apiserver.discovery import VERSION
from sandbox.apiserver.pods import quantity


@pytest.mark.parametrize(
    ("instance_type", "devices", "cores", "vcpus", "gibibytes"),
    [
        ("inf1.6xlarge", 4, 16, 24, 48),
        ("inf1.24xlarge", 16, 64, 96, 192),
        ("inf2.xlarge", 1, 2, 4, 16),
        ("inf2.24xlarge", 6, 12, 96, 384),
        ("inf2.48xlarge", 12, 24, 192, 768),
        ("trn1.2xlarge", 1, 2, 8, 32),
        ("trn1.32xlarge", 16, 32, 128, 512),
        ("trn2.48xlarge", 16, 64, 192, 2048),
        ("ml.trn1.32xlarge", 16, 32, 128, 512),
    ],
)
def test_capacity(instance_type: str, devices: int, cores: int, vcpus: int, gibibytes: int) -> None:
    """Devices, cores, vCPU and memory of the instance types; slightly less is allocatable."""
    node = fleet.node("n", instance_type)
    capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
    assert (capacity[fleet.DEVICE], capacity[fleet.CORE]) == (str(devices), str(cores))
    assert quantity(capacity["cpu"]) == vcpus
    assert quantity(capacity["memory"]) == gibibytes * 1024**3
    assert (quantity(allocatable["cpu"]) or 0) < vcpus
    assert (quantity(allocatable["memory"]) or 0) < gibibytes * 1024**3
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == instance_type


def test_api_server_and_kubelets_are_of_the_newest_release() -> None:
    """The version as a number, as a text and of the kubelets is the same."""
    assert (int(VERSION["major"]), int(VERSION["minor"])) == NEWEST
    kubelet = fleet.node("n", "inf2.xlarge")["status"]["nodeInfo"]["kubeletVersion"]
    assert kubelet.startswith(f"v{VERSION['major']}.{VERSION['minor']}.")
    assert VERSION["gitVersion"].startswith(kubelet)
