"""
The volumes that no claim has, found by what a claim asks for.

Volumes are grouped by what a claim asks for apart from size and labels, then by their node affinity, and ordered by
size. So a claim is compared with each node affinity once, not with each volume.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Self

import attrs

from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim

Terms = tuple[NodeSelectorTerm, ...] | None
_Group = tuple[str, str, str]
"""Class, volume mode and attributes class."""
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
        """Insert a volume."""
        insort(self._entries, entry)

    def remove(self, entry: Entry) -> bool:
        """Remove a volume, and return whether any is left."""
        del self._entries[bisect_left(self._entries, entry)]
        return bool(self._entries)

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(self.terms, self.label, list(self._entries))


ByAffinity = dict[Terms, VolumesOfAffinity]


@attrs.define(eq=False)
class FreeVolumes:
    """The volumes by class, volume mode and attributes class, then by access modes, then by node affinity."""

    _by_access_modes: dict[_Group, dict[frozenset[str], ByAffinity]] = attrs.field(factory=dict)

    def fork(self) -> Self:
        """Return an independent copy."""
        return type(self)(
            {
                group: {
                    modes: {terms: volumes.fork() for terms, volumes in by_affinity.items()}
                    for modes, by_affinity in by_access_modes.items()
                }
                for group, by_access_modes in self._by_access_modes.items()
            }
        )

    def put(self, volume: PersistentVolume) -> None:
        """Add a volume that no claim has."""
        if not _is_offered(volume):
            return
        by_affinity = self._by_access_modes.setdefault(_group(volume), {}).setdefault(
            frozenset(volume.access_modes), {}
        )
        terms = volume.required_terms
        volumes = by_affinity.get(terms)
        if volumes is None:
            volumes = by_affinity[terms] = VolumesOfAffinity(terms, _only_label(terms))
        volumes.put((volume.capacity, volume.name))

    def remove(self, volume: PersistentVolume) -> None:
        """Remove a volume; it must be as it was when it was put."""
        if not _is_offered(volume):
            return
        by_affinity = self._by_access_modes[_group(volume)][frozenset(volume.access_modes)]
        if not by_affinity[volume.required_terms].remove((volume.capacity, volume.name)):
            del by_affinity[volume.required_terms]

    def serving(self, claim: PersistentVolumeClaim) -> Iterator[VolumesOfAffinity]:
        """Yield the volumes that may serve a claim if their sizes and labels do, by node affinity."""
        wanted = set(claim.access_modes)
        for modes, by_affinity in self._by_access_modes.get(_group(claim), {}).items():
            if wanted <= modes:
                yield from by_affinity.values()


def _is_offered(volume: PersistentVolume) -> bool:
    return volume.available and not volume.terminating


def _group(storage: PersistentVolume | PersistentVolumeClaim) -> _Group:
    return (storage.class_name, storage.volume_mode, storage.attributes_class)


def _only_label(terms: Terms) -> Requirement | None:
    match terms:
        case [NodeSelectorTerm(expressions=[Requirement(operator=Operator.IN) as only], fields=(), unreadable=False)]:
            return only
        case _:
            return None
