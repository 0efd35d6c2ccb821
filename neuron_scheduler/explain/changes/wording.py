"""
Parts of the sentences and commands that several kinds of changes have in common.

Does not make text safe for a terminal: who prints it does that.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Final

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import clipped, few

_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9.]*", re.ASCII)


def any_of(names: Sequence[str]) -> str:
    """Return `a`, `a or b`, or `a, b or 4 more`; the names are of the cluster, and may be of any length."""
    head, _, last = few([clipped(name) for name in names]).rpartition(" and ")
    return f"{head} or {last}" if head else last


def with_template(sentence: str, pod: Pod) -> str:
    """Return a sentence about a change of a pod's spec, and where to make it if a controller makes the pod."""
    if pod.owner is None:
        return sentence
    where = "of its Deployment" if pod.owner.kind == "ReplicaSet" else "there"
    return f"{sentence} {pod.owner.kind} {clipped(pod.owner.name)} makes the pod: change the template {where}."


def kubectl(*words: str, names: Sequence[str]) -> str:
    """
    Return a command for a shell; empty if a name is none that an API server accepts.

    A file may have a pod that is called `--all`, and somebody may run the command without a second look.

    Args:
        words: all of the command but `kubectl`.
        names: those of its words that are names from the cluster.
    """
    return shlex.join(("kubectl", *words)) if all(map(_NAME.fullmatch, names)) else ""
