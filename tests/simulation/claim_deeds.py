"""What drivers do with slices of devices, and users with claims on them."""

from typing import TYPE_CHECKING, Final

import attrs

from sandbox.apiserver.resources import CLAIMS, NODES, SLICES
from tests.support.device_objects import API, Object, devices, neuron_slice

if TYPE_CHECKING:
    from tests.simulation.world import World

FOREIGN: Final = "example.com/audit"
"""A finalizer of somebody else on a claim."""
ALL: Final = 16
TEMPLATES: Final = {
    "one": devices(1),
    "two": devices(2, 4),
    "four": devices(4, 4),
    "eight": devices(8, 8),
    "xl": devices(16),
    "all": devices(0, allocationMode="All"),
}
"""Of each cluster with claims: AWS's, and two that users write."""


@attrs.frozen(kw_only=True)
class Publish:
    """
    The driver of a node publishes its devices again, or ends and takes its slice away.

    Attributes:
        missing, tainted: so many devices have gone, and so many others have a taint.
        is_complete: the other slice of the pool is there; there is none.
    """

    at: float
    node: str
    generation: int = 1
    missing: int = 0
    tainted: int = 0
    is_complete: bool = True

    def __str__(self) -> str:
        without = f", {self.missing} missing, {self.tainted} tainted{'' if self.is_complete else ', a part of them'}"
        return f"publish devices of node {self.node}, generation {self.generation}{without}"

    def done_in(self, world: "World") -> None:
        if self.missing == ALL:
            world.registry.delete(SLICES, "", self.node, {})
            return
        body = neuron_slice(self.node, ALL - self.missing)
        body["spec"]["pool"] |= {"generation": self.generation, "resourceSliceCount": 2 - self.is_complete}
        for device in body["spec"]["devices"][: self.tainted]:
            device["taints"] = [{"key": "example.com/sick", "effect": "NoSchedule"}]
        if world.store.get(SLICES.storage, "", self.node) is not None:
            world.registry.update(SLICES, "", self.node, body)
        elif world.store.get(NODES.storage, "", self.node) is not None:
            world.registry.create(SLICES, "", body)


@attrs.frozen(kw_only=True)
class CreateClaim:
    """A user creates a claim that pods can share; a foreign controller may look after it."""

    at: float
    name: str
    like: str
    audited: bool = False

    def __str__(self) -> str:
        return f"create claim {self.name} as {self.like}{' with a finalizer' if self.audited else ''}"

    def done_in(self, world: "World") -> None:
        metadata: Object = {"name": self.name, "finalizers": [FOREIGN] if self.audited else []}
        body = {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": TEMPLATES[self.like]}
        world.registry.create(CLAIMS, "default", body)


@attrs.frozen(kw_only=True)
class DeleteClaim:
    """A user deletes a claim, which stays while it has devices."""

    at: float
    name: str

    def __str__(self) -> str:
        return f"delete claim {self.name}"

    def done_in(self, world: "World") -> None:
        world.registry.delete(CLAIMS, "default", self.name, {})
