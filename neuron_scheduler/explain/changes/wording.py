"""
Parts of the sentences and commands that several kinds of changes have in common.

Refuses to make text safe for a terminal: who prints it does that.
"""

import shlex
from collections.abc import Sequence

from neuron_scheduler.model.wording import clipped, few


def any_of(names: Sequence[str]) -> str:
    """Return `a`, `a or b`, or `a, b or 4 more`; the names are of the cluster, and may be of any length."""
    head, _, last = few([clipped(name) for name in names]).rpartition(" and ")
    return f"{head} or {last}" if head else last


def kubectl(*words: str) -> str:
    """Return a command for a shell."""
    return shlex.join(("kubectl", *words))
