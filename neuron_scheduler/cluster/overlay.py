"""
Overlays: the rows as they would be in another case, such as without the pods of lower priority, for questions about
all nodes.

An overlay is a hashable value, because it is part of the definition of the indexes that answer the question. Its marks
show which rows it changes: if they are few, only these are computed. Does not change a row in the cluster.
"""

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import attrs

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.memo import memoised


class Overlay(Hashable, Protocol):
    """The case: how rows would be different."""

    @property
    def marks(self) -> Callable[[NodeInfo], Values]:
        """Index definition: a row's marks, which decide whether overlays of this type change it."""

    def changes(self, mark: Hashable) -> bool:
        """Return whether rows with this mark are changed; a row with no such mark is not."""

    def __call__(self, node_info: NodeInfo, /) -> NodeInfo:
        """Return the row as it would be."""


@attrs.frozen(eq=False)
class _Overlaid:
    """Index definition: another one, applied to rows under an overlay."""

    overlay: Overlay
    definition: Callable[[NodeInfo], Any]

    def __call__(self, node_info: NodeInfo) -> Any:
        return self.definition(self.overlay(node_info))


overlaid = memoised(maxsize=4096)(_Overlaid)
"""The only definition for an overlay and a definition, since indexes are looked up by identity."""
