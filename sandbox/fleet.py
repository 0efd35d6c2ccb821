"""
Simulated nodes: instance types as AWS sells them, and what the kubelet of each would report to the API server.

For the sandbox and its tests. The scheduler has its own table of instance types (`neuron.catalog`). The two are
separate on purpose: this one is an independent witness of what nodes report.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import attrs

from sandbox.apiserver.discovery import RELEASE
from sandbox.apiserver.store import Object

DEVICE: Final = "aws.amazon.com/neuron"
CORE: Final = "aws.amazon.com/neuroncore"
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
_MEBI: Final = 1024 * 1024


class Shape(StrEnum):
    """How the devices of a machine are linked."""

    NONE = "none"
    SINGLE = "single"
    LINE = "line"
    RING = "ring"
    TORUS = "torus"


@attrs.frozen
class InstanceType:
    """
    A machine as EC2 describes it.

    Attributes:
        vcpus: virtual cores of the host.
        memory_gib: memory of the host in GiB.
        devices: Neuron devices.
        cores_per_device: NeuronCores that the plugin advertises for each (logical cores on Trn2, at LNC 2).
        architecture: `amd64` or `arm64`.
    """

    name: str
    vcpus: int
    memory_gib: int
    devices: int = 0
    cores_per_device: int = 0
    shape: Shape = Shape.NONE
    architecture: str = "amd64"

    @property
    def max_pods(self) -> int:
        """The recommendation of AWS's max-pods calculator for a node of this size."""
        return 110 if self.vcpus < 30 else 250


# vCPU and memory: the EC2 instance type pages; devices and links: AWS's Neuron documentation.
INSTANCE_TYPES: Final[Mapping[str, InstanceType]] = {
    machine.name: machine
    for machine in (
        InstanceType("inf1.xlarge", 4, 8, 1, 4, Shape.SINGLE),
        InstanceType("inf1.2xlarge", 8, 16, 1, 4, Shape.SINGLE),
        InstanceType("inf1.6xlarge", 24, 48, 4, 4, Shape.LINE),
        InstanceType("inf1.24xlarge", 96, 192, 16, 4, Shape.LINE),
        InstanceType("inf2.xlarge", 4, 16, 1, 2, Shape.SINGLE),
        InstanceType("inf2.8xlarge", 32, 128, 1, 2, Shape.SINGLE),
        InstanceType("inf2.24xlarge", 96, 384, 6, 2, Shape.LINE),
        InstanceType("inf2.48xlarge", 192, 768, 12, 2, Shape.RING),
        InstanceType("trn1.2xlarge", 8, 32, 1, 2, Shape.SINGLE),
        InstanceType("trn1.32xlarge", 128, 512, 16, 2, Shape.TORUS),
        InstanceType("trn1n.32xlarge", 128, 512, 16, 2, Shape.TORUS),
        InstanceType("trn2.3xlarge", 12, 128, 1, 4, Shape.SINGLE),
        InstanceType("trn2.48xlarge", 192, 2048, 16, 4, Shape.TORUS),
        InstanceType("trn2u.48xlarge", 192, 2048, 16, 4, Shape.TORUS),
        # A name from the source code of AWS's driver, which EC2 does not list; vCPU and memory are those of trn2.
        InstanceType("trn3.48xlarge", 192, 2048, 16, 4, Shape.TORUS),
        InstanceType("m5.xlarge", 4, 16),
        InstanceType("m7g.4xlarge", 16, 64, architecture="arm64"),
    )
}


def node(
    name: str,
    instance_type: str,
    *,
    zone: str = "us-east-1a",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, Any]] = (),
    cores_per_device: int | None = None,
) -> Object:
    """
    Return a node of an instance type (with or without `ml.`), to be created on an API server.

    Raises:
        KeyError: the type is not in `INSTANCE_TYPES`.
    """
    machine = INSTANCE_TYPES[instance_type.removeprefix("ml.")]
    capacity = {
        "cpu": str(machine.vcpus),
        "memory": f"{machine.memory_gib * 1024 * 1024}Ki",
        "ephemeral-storage": f"{500 * 1024 * 1024}Ki",
        "pods": str(machine.max_pods),
    }
    if machine.devices:
        capacity[DEVICE] = str(machine.devices)
        capacity[CORE] = str(machine.devices * (cores_per_device or machine.cores_per_device))
    status = {
        "capacity": capacity,
        "allocatable": capacity | _allocatable(machine),
        "nodeInfo": _node_info(machine),
    }
    all_labels = _labels(name, instance_type, machine, zone) | dict(labels or {})
    spec: dict[str, Any] = {"providerID": f"sandbox:///{zone}/{name}"}
    if taints:
        spec["taints"] = [dict(taint) for taint in taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": all_labels},
        "spec": spec,
        "status": status,
    }


def _labels(name: str, instance_type: str, machine: InstanceType, zone: str) -> dict[str, str]:
    return {
        INSTANCE_TYPE_LABEL: instance_type,
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": zone.rstrip("abcdef"),
        "topology.kubernetes.io/zone": zone,
    }


def _allocatable(machine: InstanceType) -> dict[str, str]:
    """Capacity less EKS's kube-reserved (a share of each core, 255 Mi + 11 Mi a pod) and 100 Mi for eviction."""
    shares = [60, 10, 5, 5] + [2.5] * max(machine.vcpus - 4, 0)
    reserved_cpu = int(sum(shares[: machine.vcpus]))
    reserved_memory = 255 + 11 * machine.max_pods + 100
    return {
        "cpu": f"{machine.vcpus * 1000 - reserved_cpu}m",
        "memory": f"{machine.memory_gib * 1024 * 1024 - reserved_memory * _MEBI // 1024}Ki",
    }


def _node_info(machine: InstanceType) -> dict[str, str]:
    return {
        "architecture": machine.architecture,
        "containerRuntimeVersion": "simulated://1.0",
        "kernelVersion": "simulated",
        "kubeletVersion": RELEASE,
        "operatingSystem": "linux",
        "osImage": "Simulated Linux",
    }
