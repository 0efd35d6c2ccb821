"""
The volumes that no claim has, found by what a claim asks for.

Kept up to date volume by volume. What a claim asks of a volume without looking at its size and its labels is the key to
a shelf; on a shelf, volumes of one node affinity stand on one rack, ordered by size. So where a claim finds a volume is
asked once for each affinity, not once for each volume. Refuses to know nodes: an affinity becomes a set of them
elsewhere.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Self

import attrs

from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim

Terms = tuple[NodeSelectorTerm, ...] | None
Kind = tuple[str, str, str]
Entry = tuple[int, str]
"""Capacity in bytes and name."""


@attrs.define(eq=False)
class VolumesOfAffinity:
    """
    The free volumes of one node affinity.

    Attributes:
        terms: the affinity, OR over terms; None for any node.
        label: the one label, with its allowed values, that the affinity asks for; None if it asks for more or less.
    """

    terms: Terms
    label: Requirement | None = None
    _entries: list[Entry] = attrs.field(factory=list)

    def fitting(self, claim: PersistentVolumeClaim) -> Sequence[Entry]:
        """Return the volumes that are large enough, the smallest first."""
        if self._entries[0][0] >= claim.request:
            return self._entries
        return self._entries[bisect_left(self._entries, (claim.request, "")) :]

    def put(self, entry: Entry) -> None:
        """Put a volume in its place."""
        insort(self._entries, entry)

    def take(self, entry: Entry) -> bool:
        """Take a volume away, and tell whether any is left."""
        del self._entries[bisect_left(self._entries, entry)]
        return bool(self._entries)

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(self.terms, self.label, list(self._entries))


ByAffinity = dict[Terms, VolumesOfAffinity]


@attrs.define(eq=False)
class FreeVolumes:
    """Racks by affinity, on shelves by access modes, by class, volume mode and attributes class."""

    _by_access_modes: dict[Kind, dict[frozenset[str], ByAffinity]] = attrs.field(factory=dict)

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(
            {
                kind: {modes: {terms: rack.fork() for terms, rack in shelf.items()} for modes, shelf in shelves.items()}
                for kind, shelves in self._by_access_modes.items()
            }
        )

    def put(self, volume: PersistentVolume) -> None:
        """Offer a volume that no claim has."""
        if not _is_offered(volume):
            return
        shelf = self._by_access_modes.setdefault(_kind(volume), {}).setdefault(frozenset(volume.access_modes), {})
        terms = volume.required_terms
        rack = shelf.get(terms)
        if rack is None:
            rack = shelf[terms] = VolumesOfAffinity(terms, _only_label(terms))
        rack.put((volume.capacity, volume.name))

    def take(self, volume: PersistentVolume) -> None:
        """Offer a volume no longer; it must be as it was when it was put."""
        if not _is_offered(volume):
            return
        shelf = self._by_access_modes[_kind(volume)][frozenset(volume.access_modes)]
        if not shelf[volume.required_terms].take((volume.capacity, volume.name)):
            del shelf[volume.required_terms]

    def racks(self, claim: PersistentVolumeClaim) -> Iterator[VolumesOfAffinity]:
        """Yield the racks with volumes that may serve a claim, if large enough and labelled as it wants."""
        wanted = set(claim.access_modes)
        for modes, shelf in self._by_access_modes.get(_kind(claim), {}).items():
            if wanted <= modes:
                yield from shelf.values()


def _is_offered(volume: PersistentVolume) -> bool:
    return volume.available and not volume.terminating


def _kind(found: PersistentVolume | PersistentVolumeClaim) -> Kind:
    return (found.class_name, found.volume_mode, found.attributes_class)


def _only_label(terms: Terms) -> Requirement | None:
    match terms:
        case [NodeSelectorTerm(expressions=[Requirement(operator=Operator.IN) as only], fields=(), unreadable=False)]:
            return only
        case _:
            return None
