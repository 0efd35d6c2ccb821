"""
Lenses: what every row would be under an assumption, for a question to all nodes at once.

A lens is a hashable value, since it becomes part of the definition of the indexes that answer the question. Refuses to
change any row.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import attrs

from neuron_scheduler.cluster.node_state import NodeState

Lens = Callable[[NodeState], NodeState]


@attrs.frozen(eq=False)
class _Through:
    """Index definition: another one, of rows seen through a lens."""

    lens: Lens
    definition: Callable[[NodeState], Any]

    def __call__(self, state: NodeState) -> Any:
        return self.definition(self.lens(state))


through = lru_cache(maxsize=4096)(_Through)
"""The one definition for a lens and a definition: an index is then looked up by identity."""
