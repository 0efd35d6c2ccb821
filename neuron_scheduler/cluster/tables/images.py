"""
Which nodes have pulled an image of a name, and how large it is there.

Nodes of a kind have pulled the same images, and pods ask for few of them: the names of the nodes are kept by list of
images, the lists by image. An image has a set of nodes once a pod has asked for it. One name may stand for images of
different sizes (another architecture, a tag that moved on).
"""

from collections.abc import Hashable, Iterator, Mapping
from operator import attrgetter
from typing import Self, TypeVar

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, from_slots
from neuron_scheduler.model.node import Image

_Key = TypeVar("_Key", bound=Hashable)
_Member = TypeVar("_Member", bound=Hashable)
_Owned = tuple[object, set[_Member]]
"""A set, and the table that may change it; another one that has it is a fork, and copies it first."""


@attrs.define(eq=False)
class ImageTable:
    """Images by name, lists by image, and nodes by list; an object stands for a list, whose hash takes long."""

    _by_name: dict[str, _Owned[Image]] = attrs.field(factory=dict)
    _lists: dict[Image, _Owned[object]] = attrs.field(factory=dict)
    _marks: dict[tuple[Image, ...], object] = attrs.field(factory=dict)
    _nodes: dict[object, _Owned[str]] = attrs.field(factory=dict)
    _sets: dict[Image, NodeSet] = attrs.field(factory=dict)
    _owner: object = attrs.field(factory=object)

    def replace(self, node: str, slot: Slot, old: tuple[Image, ...], new: tuple[Image, ...]) -> None:
        if old is new or old == new:
            return
        if new:
            self._add(new, node)
        if old:
            self._discard(old, node)
        if self._sets:
            for image in set(old).symmetric_difference(new) & self._sets.keys():
                self._sets[image] ^= 1 << slot

    def sizes_of(self, name: str, slot_of: Mapping[str, Slot]) -> Iterator[tuple[int, NodeSet]]:
        """Yield the sizes of the images of a name, the largest first, each with the nodes that have that size."""
        larger, (_, images) = NO_NODES, self._by_name.get(name, (None, ()))
        for image in sorted(images, key=attrgetter("size"), reverse=True):
            nodes = self._sets.get(image)
            if nodes is None:
                slots = [slot_of[node] for mark in self._lists[image][1] for node in self._nodes[mark][1]]
                nodes = self._sets[image] = from_slots(slots, max(slots) + 1)
            yield image.size, nodes & ~larger
            larger |= nodes

    def fork(self) -> Self:
        """Return an independent copy; a set is copied when one of the two changes it."""
        self._owner = object()
        by_name, lists, marks, nodes = self._by_name, self._lists, self._marks, self._nodes
        return type(self)(dict(by_name), dict(lists), dict(marks), dict(nodes), dict(self._sets))

    def _add(self, images: tuple[Image, ...], node: str) -> None:
        mark = self._marks.get(images)
        if mark is None:
            mark = self._marks[images] = object()
            for image in images:
                if image not in self._lists:
                    for name in image.names:
                        self._own(self._by_name, name).add(image)
                self._own(self._lists, image).add(mark)
        self._own(self._nodes, mark).add(node)

    def _discard(self, images: tuple[Image, ...], node: str) -> None:
        mark = self._marks[images]
        if self._is_last(self._nodes, mark, node):
            del self._marks[images]
            for image in set(images):
                if self._is_last(self._lists, image, mark):
                    self._sets.pop(image, None)
                    for name in set(image.names):
                        self._is_last(self._by_name, name, image)

    def _own(self, sets: dict[_Key, _Owned[_Member]], key: _Key) -> set[_Member]:
        """Return a set to change."""
        owner, members = sets.get(key, (None, set()))
        if owner is not self._owner:
            sets[key] = self._owner, (members := set(members))
        return members

    def _is_last(self, sets: dict[_Key, _Owned[_Member]], key: _Key, member: _Member) -> bool:
        """Remove a member, and return whether its set is gone with it."""
        members = self._own(sets, key)
        members.remove(member)
        if not members:
            del sets[key]
        return not members
