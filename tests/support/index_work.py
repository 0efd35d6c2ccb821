"""What is asked of the cluster's indexes and rows, counted: a question that costs more in a larger fleet shows here."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import attrs

from neuron_scheduler.cluster.index.column import Column
from neuron_scheduler.cluster.index.postings import Postings
from neuron_scheduler.cluster.tables.nodes import NodeTable
from neuron_scheduler.cluster.view import View


@attrs.define(eq=False)
class IndexWork:
    """
    Operations since the counting began.

    Attributes:
        asked: indexes that were asked for.
        built: indexes that were made from all rows, in blocks of a thousand.
        updated: changes of one row that one index took.
        rows: rows that were read.
    """

    asked: int = 0
    built: int = 0
    updated: int = 0
    rows: int = 0


_OPERATIONS: Mapping[str, Sequence[tuple[type, str]]] = {
    "asked": [(View, name) for name in ("postings", "column", "node_postings", "node_column", "counts", "totals")],
    "built": [(Postings, "extend"), (Column, "extend")],
    "updated": [(Postings, "replace"), (Column, "replace")],
    "rows": [(View, "row"), (NodeTable, "row")],
}


@contextmanager
def counted_index_work() -> Iterator[IndexWork]:
    """Count inside the `with` block."""
    work = IndexWork()
    with ExitStack() as patches:
        for kind, operations in _OPERATIONS.items():
            for owner, name in operations:
                patches.enter_context(mock.patch.object(owner, name, _counting(work, kind, owner.__dict__[name])))
        yield work


def _counting(work: IndexWork, kind: str, operation: Any) -> Any:
    """Return a method that counts its calls."""
    function: Callable[..., Any] = operation.__func__ if isinstance(operation, classmethod) else operation

    @wraps(function)
    def counting(*arguments: Any, **options: Any) -> Any:
        setattr(work, kind, getattr(work, kind) + 1)
        return function(*arguments, **options)

    return classmethod(counting) if isinstance(operation, classmethod) else counting
