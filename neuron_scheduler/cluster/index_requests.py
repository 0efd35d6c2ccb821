"""Which indexes a question uses: recorded by asking it once, so that missing ones can be built in steps beforehand."""

from collections.abc import Callable, Generator, Hashable, Iterator
from typing import Any

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.node import Node


@attrs.frozen(eq=False)
class Needs:
    """Definitions of the indexes of nodes and of rows that a question uses, without those under an overlay."""

    of_nodes: tuple[Callable[[Node], Any], ...]
    of_rows: tuple[Callable[[NodeInfo], Any], ...]


@attrs.define(eq=False)
class IndexRequests:
    """
    The indexes that a question has asked for.

    Attributes:
        of_nodes, of_rows: by definition.
        lacking: those that are not ready, by definition, with the function that prepares each in steps.
    """

    of_nodes: dict[Callable[[Node], Any], None] = attrs.field(factory=dict)
    of_rows: dict[Callable[[NodeInfo], Any], None] = attrs.field(factory=dict)
    lacking: dict[Hashable, Callable[[], Iterator[None]]] = attrs.field(factory=dict)

    @property
    def needs(self) -> Needs:
        """The definitions, to be kept."""
        return Needs(tuple(self.of_nodes), tuple(self.of_rows))

    def prepared(self) -> Generator[None, None, None]:
        """Prepare what is lacking; yields when other tasks may run."""
        for prepare in self.lacking.values():
            yield from prepare()
