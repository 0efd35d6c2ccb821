"""
Which nodes have pulled an image of a name, and how large it is there.

Nodes of a kind have pulled the same images, and pods ask for few of them: the nodes are kept by list of images, the
lists by image. An image has a set of nodes once a pod has asked for it. One name may stand for images of
different sizes (another architecture, a tag that moved on).
"""

from collections.abc import Hashable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Self, TypeVar

import attrs

from neuron_scheduler.cluster.index.copy_on_write import CopyOnWrite
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, from_slots
from neuron_scheduler.model.node import Image

_Key = TypeVar("_Key", bound=Hashable)
_Member = TypeVar("_Member", bound=Hashable)


@attrs.define(eq=False)
class ImageTable:
    """Images by name, lists by image, and nodes by list; an object stands for a list, whose hash takes long."""

    _by_name: CopyOnWrite[str, set[Image]] = attrs.field(factory=CopyOnWrite)
    _lists: CopyOnWrite[Image, set[object]] = attrs.field(factory=CopyOnWrite)
    _marks: dict[tuple[Image, ...], object] = attrs.field(factory=dict)
    _nodes: CopyOnWrite[object, set[Slot]] = attrs.field(factory=CopyOnWrite)
    _sets: dict[Image, NodeSet] = attrs.field(factory=dict)

    def replace(self, slot: Slot, old: tuple[Image, ...], new: tuple[Image, ...]) -> None:
        if old is new or old == new:
            return
        if new:
            self._add(new, slot)
        if old:
            self._discard(old, slot)
        if self._sets:
            for image in set(old).symmetric_difference(new) & self._sets.keys():
                self._sets[image] ^= 1 << slot

    def sizes_of(self, name: str, size: int) -> Iterator[tuple[int, NodeSet]]:
        """Yield the sizes of the images of a name, the largest first, each with those of `size` slots that have it."""
        larger = NO_NODES
        for image in sorted(self._by_name.by_key.get(name, ()), key=attrgetter("size"), reverse=True):
            nodes = self._sets.get(image)
            if nodes is None:
                slots = chain.from_iterable(map(self._nodes.by_key.__getitem__, self._lists.by_key[image]))
                nodes = self._sets[image] = from_slots(slots, size)
            yield image.size, nodes & ~larger
            larger |= nodes

    def fork(self) -> Self:
        """Return an independent copy."""
        copies = self._by_name.copy(), self._lists.copy(), dict(self._marks), self._nodes.copy(), dict(self._sets)
        return type(self)(*copies)

    def _add(self, images: tuple[Image, ...], slot: Slot) -> None:
        mark = self._marks.get(images)
        if mark is None:
            mark = self._marks[images] = object()
            for image in images:
                if image not in self._lists.by_key:
                    for name in image.names:
                        self._by_name.to_change(name, set).add(image)
                self._lists.to_change(image, set).add(mark)
        self._nodes.to_change(mark, set).add(slot)

    def _discard(self, images: tuple[Image, ...], slot: Slot) -> None:
        mark = self._marks[images]
        if _is_last(self._nodes, mark, slot):
            del self._marks[images]
            for image in set(images):
                if _is_last(self._lists, image, mark):
                    self._sets.pop(image, None)
                    for name in set(image.names):
                        _is_last(self._by_name, name, image)


def _is_last(sets: CopyOnWrite[_Key, set[_Member]], key: _Key, member: _Member) -> bool:
    """Remove a member, and return whether its set is gone with it."""
    members = sets.to_change(key, set)
    members.remove(member)
    if not members:
        sets.remove(key)
    return not members
