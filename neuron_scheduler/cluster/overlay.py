"""
Lenses: what every row would be under an assumption, for a question to all nodes at once.

A lens is a hashable value, since it becomes part of the definition of the indexes that answer the question. It tells by
marks which rows it changes: where these are few, only they are looked at. Refuses to change any row.
"""

from collections.abc import Callable, Hashable
from typing import Any, Protocol

import attrs

from neuron_scheduler.cluster.index.postings import Values
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.memo import memoised


class Overlay(Hashable, Protocol):
    """An assumption about rows."""

    @property
    def marks(self) -> Callable[[NodeInfo], Values]:
        """Index definition: the marks by which lenses of this sort tell the rows that they change."""

    def changes(self, mark: Hashable) -> bool:
        """Tell whether rows with this mark are changed; a row without such a mark is not."""

    def __call__(self, node_info: NodeInfo, /) -> NodeInfo:
        """Return the row as it would be."""


@attrs.frozen(eq=False)
class _Overlaid:
    """Index definition: another one, of rows seen through a lens."""

    overlay: Overlay
    definition: Callable[[NodeInfo], Any]

    def __call__(self, node_info: NodeInfo) -> Any:
        return self.definition(self.overlay(node_info))


overlaid = memoised(maxsize=4096)(_Overlaid)
"""The one definition for a lens and a definition: an index is then looked up by identity."""
