"""
What administrators, kubelets and cloud providers do to nodes.

As in `deeds`, each is a value with a moment and a sentence. Refuses to touch pods: they stay when their node goes.
"""

from typing import TYPE_CHECKING, Any

import attrs

from neuron_scheduler.sandbox import fleet
from neuron_scheduler.sandbox.apiserver.resources import NODES
from tests.simulation.deeds import MERGE

if TYPE_CHECKING:
    from tests.simulation.world import World


@attrs.frozen(kw_only=True)
class Cordon:
    """An administrator cordons a node, or ends that."""

    at: float
    node: str
    ends: bool = False

    def __str__(self) -> str:
        return f"{'uncordon' if self.ends else 'cordon'} node {self.node}"

    def done_in(self, world: "World") -> None:
        """Do it."""
        _patch_node(world, self.node, {"spec": {"unschedulable": None if self.ends else True}})


@attrs.frozen(kw_only=True)
class Taint:
    """A controller taints a node, or removes all taints when there is no effect."""

    at: float
    node: str
    effect: str = ""

    def __str__(self) -> str:
        return f"taint node {self.node} with {self.effect}" if self.effect else f"remove the taints of node {self.node}"

    def done_in(self, world: "World") -> None:
        """Do it."""
        taints = [{"key": "example.com/maintenance", "effect": self.effect}] if self.effect else None
        _patch_node(world, self.node, {"spec": {"taints": taints}})


@attrs.frozen(kw_only=True)
class SetHealthy:
    """The device plugin of a node reports that fewer devices work, or that all do; their ids are not told."""

    at: float
    node: str
    missing: int

    def __str__(self) -> str:
        return f"{self.missing} devices of node {self.node} are unhealthy"

    def done_in(self, world: "World") -> None:
        """Do it."""
        node = world.registry.get(NODES, "", self.node)
        capacity = node["status"]["capacity"]
        devices, cores = int(capacity.get(fleet.DEVICE, 0)), int(capacity.get(fleet.CORE, 0))
        left = max(devices - self.missing, 0)
        amounts = {fleet.DEVICE: str(left), fleet.CORE: str(left * cores // devices)} if devices else {}
        status = node["status"] | {"allocatable": node["status"]["allocatable"] | amounts}
        world.store.put(NODES.storage, node | {"status": status})


@attrs.frozen(kw_only=True)
class DeleteNode:
    """A node is removed under its pods, which stay until the garbage collector finds them."""

    at: float
    node: str

    def __str__(self) -> str:
        return f"delete node {self.node}"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.registry.delete(NODES, "", self.node, {})


@attrs.frozen(kw_only=True)
class CreateNode:
    """A node joins; it may have the name of an earlier one, and another type."""

    at: float
    node: str
    instance_type: str

    def __str__(self) -> str:
        return f"create node {self.node}: {self.instance_type}"

    def done_in(self, world: "World") -> None:
        """Do it."""
        world.registry.create(NODES, "", fleet.node(self.node, self.instance_type))


def _patch_node(world: "World", name: str, change: dict[str, Any]) -> None:
    world.registry.patch(NODES, "", name, change, media_type=MERGE)
