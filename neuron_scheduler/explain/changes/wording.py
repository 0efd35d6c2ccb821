"""
Parts of the sentences and commands that several kinds of changes have in common.

Refuses to make text safe for a terminal: who prints it does that.
"""

import shlex
from collections.abc import Sequence
from typing import Final

MOST_NAMED: Final = 4


def listed(names: Sequence[str], last: str = "and") -> str:
    """Return `a`, `a and b` or `a, b and c`; of many names the first ones, and how many more there are."""
    if len(names) > MOST_NAMED:
        return f"{', '.join(names[:MOST_NAMED])} {last} {len(names) - MOST_NAMED} more"
    return " ".join(filter(None, (", ".join(names[:-1]), last if len(names) > 1 else "", names[-1])))


def kubectl(*words: str) -> str:
    """Return a command for a shell."""
    return shlex.join(("kubectl", *words))
