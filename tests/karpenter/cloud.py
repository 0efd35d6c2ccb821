"""
The cloud that Karpenter buys from in these tests: EC2's Neuron instance types in two zones, and pools of them.

Only the order of the prices matters: Karpenter takes the cheapest type that serves.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.control_plane.objects import MACHINES, NEURON, NEURONCORE
from tests.control_plane.rest import Object

ZONES: Final = ("us-west-2a", "us-west-2b")
ZONE: Final = "topology.kubernetes.io/zone"
TYPE: Final = "node.kubernetes.io/instance-type"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
PRICES: Final = {
    "inf2.xlarge": 0.76,
    "trn1.2xlarge": 1.34,
    "inf2.8xlarge": 1.97,
    "inf2.24xlarge": 6.49,
    "inf2.48xlarge": 12.98,
    "trn1.32xlarge": 21.50,
    "trn2.48xlarge": 35.80,
}
"""What an instance costs in an hour, in dollars, roughly."""
NODE_CLASS: Final[Object] = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
    "spec": {},
}


def resources(instance_type: str) -> dict[str, str]:
    """Return what an instance of a type has, as a Node lists it."""
    vcpu, gib, devices, cores = MACHINES[instance_type]
    return {
        "cpu": str(vcpu),
        "memory": f"{gib}Gi",
        "ephemeral-storage": "500Gi",
        "pods": "110",
        NEURON: str(devices),
        NEURONCORE: str(cores),
    }


def write_instance_types(path: Path) -> Path:
    """Write the file that Karpenter reads at its start; return its path."""
    types = [
        {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": resources(name),
            "offerings": [{"Price": price, "Available": True, "Requirements": _offered(zone)} for zone in ZONES],
        }
        for name, price in PRICES.items()
    ]
    path.write_text(json.dumps(types, indent=1))
    return path


def node_pool(
    name: str,
    instance_types: Sequence[str],
    *,
    consolidate_after: str = "Never",
    policy: str = "WhenEmpty",
    limits: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> Object:
    """Return a NodePool of these instance types; `policy` is its consolidation policy."""
    spec: dict[str, Any] = {
        "template": {
            "metadata": {"labels": dict(labels or {})},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [_one_of(TYPE, *instance_types), _one_of(CAPACITY_TYPE, "on-demand")],
                "taints": [dict(taint) for taint in taints],
                "expireAfter": "Never",
            },
        },
        "disruption": {
            "consolidateAfter": consolidate_after,
            "consolidationPolicy": policy,
            "budgets": [{"nodes": "100%"}],
        },
    }
    if limits:
        spec["limits"] = dict(limits)
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def _offered(zone: str) -> list[Object]:
    return [_one_of(ZONE, zone), _one_of(CAPACITY_TYPE, "on-demand")]


def _one_of(key: str, *values: str) -> Object:
    return {"key": key, "operator": "In", "values": list(values)}
