"""
The sum of a count over each domain, stored at every node of the domain.

Domains are the values of one label (zone, hostname, UltraServer id); a node without a domain has 0. One more pod flips
the domain's set of nodes in the planes that change. So "at most so many in the node's domain" and "the fewest of all
domains" read each plane once, with three domains or fifteen thousand.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Self

import attrs

from neuron_scheduler.cluster.index.change_log import ChangeLog
from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.copy_on_write import MANY, SharedDict
from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet, Slot, from_slots
from neuron_scheduler.cluster.index.postings import Postings
from neuron_scheduler.model.node import Node

Relabelings = ChangeLog[tuple[Slot, Node | None]]
"""The slots whose node came, went or changed its labels, each with the node before."""
_FEW: Final = 64
"""Numbers, or domains, after which building yields."""
_AT_ONCE: Final = 1024
"""Nodes, likewise; the sums of fewer domains are added one domain after the other."""


@attrs.frozen
class Domains:
    """The nodes by domain, for one label; `relabelings` has the nodes that may have changed theirs."""

    key: str
    postings: Postings
    nodes: list[Node | None]
    relabelings: Relabelings

    def domain_of_slot(self, slot: Slot) -> str | None:
        return self.domain_of_node(self.nodes[slot])

    def moved_since(self, position: int) -> Mapping[Slot, str | None]:
        """Return the slots that had another domain at a position that the log covers, with that domain."""
        earlier: dict[Slot, str | None] = {}
        for slot, before in self.relabelings.changes_since(position):
            earlier.setdefault(slot, self.domain_of_node(before))
        return {slot: domain for slot, domain in earlier.items() if domain != self.domain_of_slot(slot)}

    def domain_of_node(self, node: Node | None) -> str | None:
        return None if node is None else domain_of(node, self.key)


def larger(domains: Domains | None) -> Domains | None:
    """Return domains of several nodes; None if each node is one by itself."""
    if domains is None or len(domains.postings.values) == domains.postings.keyed.bit_count():
        return None
    return domains


@attrs.define(eq=False)
class Rollup:
    """
    Sums by domain; `totals` has at each node the sum of its domain. Without domains it has the number of the node.

    It keeps no domains: a thousand rollups that are not used would keep a list of all nodes each.
    """

    totals: Column
    _numbers: dict[Slot, int] | SharedDict[Slot, int] = attrs.field(factory=dict)
    _by_domain: dict[str, int] = attrs.field(factory=dict)
    _position: int | None = None  # in the log of relabelings; None without domains

    @classmethod
    def build(cls, numbers: dict[Slot, int], domains: Domains | None) -> Iterator[Self]:
        """
        Sum up the numbers above 0, by slot; the rollup may keep and change the mapping.

        Yields the rollup after each step; the last one is complete. `follow` applies what nodes have changed meanwhile.
        """
        if domains is None:
            yield cls(Column.sparse(numbers))
            return
        own = numbers if len(numbers) < MANY else SharedDict[Slot, int]()
        rollup, nodes, postings = cls(Column(), own, {}, domains.relabelings.end), domains.nodes, domains.postings
        if len(numbers) >= _FEW:  # else there is no pause before all is read
            nodes, postings = list(nodes), postings.fork()
        by_domain, totals = rollup._by_domain, rollup.totals
        for count, (slot, number) in enumerate(numbers.items(), start=1):
            own[slot], domain = number, domains.domain_of_node(nodes[slot])
            if domain is not None:
                by_domain[domain] = by_domain.get(domain, 0) + number
            if count % _FEW == 0:
                yield rollup
        if len(by_domain) < _AT_ONCE:
            for count, (domain, total) in enumerate(by_domain.items(), start=1):
                totals.flip(total, postings.get(domain))
                if count % _FEW == 0:
                    yield rollup
        else:
            for first in range(0, len(nodes), _AT_ONCE):
                of_nodes = map(domains.domain_of_node, nodes[first : first + _AT_ONCE])
                totals.extend([0 if domain is None else by_domain.get(domain, 0) for domain in of_nodes], first)
                yield rollup
        yield rollup

    def totals_in(self, domains: Domains | None) -> Column:
        """Return the totals of the nodes that have a domain, 0 elsewhere; also if each node is one by itself."""
        if domains is None or self._position is not None:
            return self.totals
        keyed = domains.postings.keyed
        return self.totals.mask(keyed) if self.totals.positive & ~keyed else self.totals

    def can_follow(self, domains: Domains | None) -> bool:
        """Return whether it is of these domains, and the log has what nodes have changed since."""
        if domains is None or self._position is None:
            return domains is None and self._position is None
        return domains.relabelings.covers(self._position)

    def has_followed(self, domains: Domains | None) -> bool:
        return domains is None or self._position is None or self._position == domains.relabelings.end

    def copy(self) -> Self:
        return type(self)(self.totals.fork(), self._numbers.copy(), dict(self._by_domain), self._position)

    def add(self, slot: Slot, change: int, domains: Domains | None) -> None:
        """Change the number of a slot; the rollup must have followed these domains."""
        if domains is None:
            number = self.totals.value(slot)
            self.totals.replace(slot, number, number + change)
            return
        self._numbers[slot] = (self._numbers.get(slot) or 0) + change
        domain = domains.domain_of_slot(slot)
        if domain is not None:
            self._shift(domain, change, domains.postings.get(domain))

    def follow(self, domains: Domains | None) -> None:
        """Apply changes of the nodes' domains since the last time; it must be able to."""
        if domains is None or self._position is None or self.has_followed(domains):
            return
        moved = domains.moved_since(self._position)
        self._position = domains.relabelings.end
        changes: dict[str, int] = {}
        current = {slot: domains.domain_of_slot(slot) for slot in moved}
        for slot, before in moved.items():
            number = self._numbers.get(slot) or 0
            for domain, change in ((before, -number), (current[slot], number)):
                if domain is not None:
                    changes[domain] = changes.get(domain, 0) + change
        arrived = from_slots(moved, len(domains.nodes)) if moved else NO_NODES
        self.totals = self.totals.mask(~arrived)
        for domain, change in changes.items():
            self._shift(domain, change, domains.postings.get(domain) & ~arrived if change else NO_NODES)
        for domain in {domain for domain in current.values() if domain is not None}:
            self.totals.flip(self._by_domain[domain], domains.postings.get(domain) & arrived)

    def _shift(self, domain: str, change: int, nodes: NodeSet) -> None:
        """Change the sum of a domain, and the totals of nodes in it."""
        old = self._by_domain.get(domain, 0)
        self._by_domain[domain] = old + change
        if change:
            self.totals.flip(old ^ (old + change), nodes)
