"""
Which nodes have pulled an image of a name, and how large it is there.

Nodes share images, and pods ask for few of them: the names of the nodes are kept by image, and become a set when a pod
first asks for the image. One name may stand for images of different sizes (another architecture, a tag that moved on).
"""

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Self

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, from_slots
from neuron_scheduler.model.node import Image


@attrs.define(eq=False)
class ImageTable:
    """Images by name, and nodes by image."""

    _nodes: dict[Image, set[str]] = attrs.field(factory=dict)
    _by_name: dict[str, tuple[Image, ...]] = attrs.field(factory=dict)
    _sets: dict[Image, NodeSet] = attrs.field(factory=dict)
    _own: set[Image] | None = None  # whose nodes no fork has; None before the first fork: all

    def replace(self, node: str, slot: Slot, old: tuple[Image, ...], new: tuple[Image, ...]) -> None:
        if old is new or old == new:
            return
        removed, added = set(old).difference(new), set(new).difference(old)
        for image in added:
            nodes = self._nodes.get(image) if self._own is None else None
            if nodes is None:
                self._add(image, node)
            else:
                nodes.add(node)
        for image in removed:
            self._discard(image, node)
        for image in (added | removed) & self._sets.keys():
            self._sets[image] ^= 1 << slot

    def renumber(self) -> None:
        """Drop what depends on slots, which are others from now on."""
        self._sets.clear()

    def sizes_of(self, name: str, slot_of: Mapping[str, Slot]) -> Iterator[tuple[int, NodeSet]]:
        """Yield the sizes of the images of a name, the largest first, each with the nodes that have that size."""
        larger = NO_NODES
        for image in sorted(self._by_name.get(name, ()), key=attrgetter("size"), reverse=True):
            nodes = self._sets.get(image)
            if nodes is None:
                slots = [slot_of[node] for node in self._nodes[image]]
                nodes = self._sets[image] = from_slots(slots, max(slots) + 1)
            yield image.size, nodes & ~larger
            larger |= nodes

    def fork(self) -> Self:
        """Return an independent copy; a set of nodes is copied when one of the two changes it."""
        self._own = set()
        return type(self)(nodes=dict(self._nodes), by_name=dict(self._by_name), sets=dict(self._sets), own=set())

    def _nodes_to_change(self, image: Image) -> set[str]:
        """Return the nodes of an image, copied first if a fork has them."""
        if self._own is not None and image not in self._own:
            self._own.add(image)
            self._nodes[image] = set(self._nodes[image])
        return self._nodes[image]

    def _add(self, image: Image, node: str) -> None:
        if image in self._nodes:
            self._nodes_to_change(image).add(node)
            return
        self._nodes[image] = {node}
        for name in dict.fromkeys(image.names):
            self._by_name[name] = (*self._by_name.get(name, ()), image)

    def _discard(self, image: Image, node: str) -> None:
        nodes = self._nodes_to_change(image)
        nodes.remove(node)
        if nodes:
            return
        del self._nodes[image]
        if self._own is not None:
            self._own.discard(image)
        self._sets.pop(image, None)
        for name in dict.fromkeys(image.names):
            rest = tuple(kept for kept in self._by_name[name] if kept != image)
            if rest:
                self._by_name[name] = rest
            else:
                del self._by_name[name]
