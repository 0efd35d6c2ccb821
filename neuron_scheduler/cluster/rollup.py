"""
A count's total over each node's domain, known at every node of the domain.

Domains are the values of one label (zone, hostname, UltraServer id); a node without the label is in none and has 0. One
pod more flips the domain's set of nodes in the planes that change, so "at most so many in the node's domain" and "the
fewest of any domain" are one walk over planes, for three domains as for fifteen thousand.
"""

from collections.abc import Mapping, Sequence
from typing import Self

import attrs

from neuron_scheduler.cluster.column import Column
from neuron_scheduler.cluster.postings import Postings
from neuron_scheduler.model.node import Node


@attrs.frozen
class Domains:
    """
    The domains that a label makes of the nodes.

    Attributes:
        key: the label.
        postings: nodes by its value.
        nodes: the nodes by slot.
        epoch: changes whenever a node comes, goes, or changes its labels.
    """

    key: str
    postings: Postings
    nodes: Sequence[Node | None]
    epoch: int

    @property
    def unique(self) -> bool:
        """Whether every domain is one node."""
        return len(self.postings.values) == self.postings.keyed.bit_count()

    def of(self, slot: int) -> str | None:
        """Return the domain of a slot, None if its node lacks the label."""
        node = self.nodes[slot]
        return None if node is None else node.labels.get(self.key)


@attrs.define(eq=False)
class Rollup:
    """
    Totals by domain.

    Attributes:
        totals: the same as a column over nodes.
    """

    totals: Column
    _by_domain: dict[str, int]
    _domains: Domains

    @classmethod
    def build(cls, numbers: Mapping[int, int], domains: Domains, size: int) -> Self:
        """Sum up the numbers above 0, by slot; the rollup is true for as long as the domains' epoch lasts."""
        by_domain: dict[str, int] = {}
        for slot, number in numbers.items():
            domain = domains.of(slot)
            if domain is not None:
                by_domain[domain] = by_domain.get(domain, 0) + number
        at_slot: dict[int, int] = {}
        of_many: list[str] = []
        for domain, total in by_domain.items():
            slots = domains.postings.slots(domain)
            if isinstance(slots, tuple):
                at_slot.update(dict.fromkeys(slots, total))
            else:
                of_many.append(domain)
        totals = Column.sparse(at_slot, size)
        for domain in of_many:
            totals.flip(by_domain[domain], domains.postings.get(domain))
        return cls(totals=totals, by_domain=by_domain, domains=domains)

    def add(self, slot: int, change: int) -> None:
        """Change the total of a slot's domain."""
        domain = self._domains.of(slot)
        if domain is None:
            return
        old = self._by_domain.get(domain, 0)
        self._by_domain[domain] = old + change
        self.totals.flip(old ^ (old + change), self._domains.postings.get(domain))
