"""
What a reader sees of an answer who may not get the pods of all namespaces: counts, sizes and nodes, and fields.

Fields alone decide. A pod that the reader may not get loses its name, and a sentence that may name such a pod is left
out. Which sentences may is known from the fields beside them: the plugin, the cause, and whose space is kept.
"""

from typing import Any, Final

import attrs

from neuron_scheduler.explain.answers import (
    LEFT_OUT,
    Explanation,
    Fit,
    Fleet,
    Holder,
    LeavingPod,
    MachinePicture,
    NodeGroup,
    PodSummary,
    RecentDecision,
    RecentDecisions,
    SuggestedChange,
    Verdict,
    Waiting,
    WaitingEntry,
)
from neuron_scheduler.model.wording import count_text
from neuron_scheduler.scheduling.plugins import neuron_topology, node_ports
from neuron_scheduler.scheduling.plugins.cause import Cause

OTHERS_LEFT_OUT: Final = "Names of pods in other namespaces are hidden."
A_POD: Final = "a pod that you may not see"

AnyAnswer = Explanation | Fit | Fleet | Waiting | RecentDecisions

_NAME_NONE: Final = (Cause.CAPACITY, Cause.FRAGMENTATION, Cause.INVALID_COUNT)
"""Causes for which Neuron's figures name no pod; for others they name holders whose ids are unknown."""


@attrs.frozen
class Names:
    """
    Whose pods' names a reader may see.

    Attributes:
        shown: the namespace whose names are shown; None for all, empty for none.
    """

    shown: str | None

    def __contains__(self, namespace: object) -> bool:
        return self.shown is None or namespace == self.shown


def answer_as_seen(answer: AnyAnswer, names: Names) -> AnyAnswer:
    """Return an answer with what a reader may see of it as a whole; the values in it are for `as_seen`."""
    if names.shown is None or isinstance(answer, Fit):  # which names no pod
        return answer
    bound = isinstance(answer, Explanation) and answer.verdict is Verdict.BOUND
    notes = () if bound else answer.notes  # those on the node of a bound pod name pods with unknown ids
    return attrs.evolve(answer, notes=(*notes, OTHERS_LEFT_OUT if names.shown else LEFT_OUT))


def as_seen(value: Any, names: Names) -> Any:
    """Return a value in an answer as a reader may see it."""
    seen = value
    match value:
        case _ if names.shown is None:
            pass
        case tuple():
            seen = tuple(as_seen(item, names) for item in value)
        case LeavingPod() if value.namespace not in names:
            seen = attrs.evolve(value, namespace="", name="", budgets=())
        case PodSummary() if value.namespace not in names:
            seen = attrs.evolve(value, namespace="", name="", group="", owner="", scheduler_name="")
        case Holder() if value.namespace not in names:
            seen = attrs.evolve(value, namespace="", name="")
        case WaitingEntry() | RecentDecision() if value.pod.namespace not in names:  # the message may name its claims
            seen = attrs.evolve(value, pod=as_seen(value.pod, names), message="")
        case MachinePicture():
            seen = attrs.evolve(value, holders=as_seen(value.holders, names))
        case NodeGroup():
            kept_for = tuple(key if key.partition("/")[0] in names else A_POD for key in value.kept_for)
            silent = kept_for or value.plugin == node_ports.NAME
            silent = silent or (value.plugin == neuron_topology.NAME and value.cause not in _NAME_NONE)
            seen = attrs.evolve(value, arithmetic="" if silent else value.arithmetic, kept_for=kept_for)
        case SuggestedChange() if any(pod.namespace not in names for pod in value.pods):
            ending = f"{count_text(len(value.pods), 'pod')} of {value.node_name or 'several nodes'} end"
            sentence = f"{ending}; you may not see all of them."
            seen = attrs.evolve(value, sentence=sentence, command="", pods=as_seen(value.pods, names))
    return seen
