"""Clusters with nodes in pieces, pods that wait on them, and the plan for both."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final

from neuron_scheduler.capacity.planning.need import MachineNeed
from neuron_scheduler.capacity.planning.plan import MachinePlan, UnplacedPod, plan_machines
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.steps import run
from tests.support.builders import node, pod

PROFILE: Final = default_profile("my-scheduler")
TRN1: Final = "trn1.32xlarge"
INF2: Final = "inf2.48xlarge"
ROWS: Final = (0, 5, 10, 15)
"""One device of each row and each column: no block of 4 is left, and 12 devices are."""
UNSCHEDULABLE: Final = PodCondition("False", "Unschedulable")


def broken(name: str, instance_type: str = TRN1, ids: Sequence[int] = ROWS, **fields: Any) -> tuple[Node, list[Pod]]:
    """Return a node whose free devices are in pieces, with the pods that break them up."""
    holders = [pod(f"{name}-{device}", devices=1, on=name, ids=(device,)) for device in ids]
    return node(name, instance_type, **{"created": 1.0, **fields}), holders


def cluster_of(*nodes: tuple[Node, Iterable[Pod]]) -> Cluster:
    """Return a cluster of nodes with their pods."""
    cluster = Cluster()
    for each, pods in nodes:
        cluster.put_node(each)
        for bound in pods:
            cluster.put_pod(bound)
    return cluster


def waiting(name: str, devices: int = 0, **fields: Any) -> Pod:
    return pod(name, devices=devices, **{"scheduled": UNSCHEDULABLE, "scheduler_name": "my-scheduler", **fields})


def plan_for(
    cluster: Cluster, pods: Iterable[Pod | UnplacedPod], *, coming: Mapping[str, MachineNeed] | None = None
) -> MachinePlan:
    """Return the plan; pods may ask unless something else is said."""
    return run(steps_for(cluster, pods, coming=coming))


def steps_for(
    cluster: Cluster, pods: Iterable[Pod | UnplacedPod], *, coming: Mapping[str, MachineNeed] | None = None
) -> Generator[None, None, MachinePlan]:
    """Return the steps of a plan."""
    in_order = [each if isinstance(each, UnplacedPod) else UnplacedPod(each) for each in pods]
    return plan_machines(cluster, in_order, coming or {}, lambda _: PROFILE)


def machines(plan: MachinePlan) -> list[str]:
    return [need.instance_type for need in plan.needs]


def in_zone(zone: str, **labels: str) -> dict[str, str]:
    return {ZONE_LABEL: zone, **labels}
