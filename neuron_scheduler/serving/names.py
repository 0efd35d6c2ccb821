"""
What a reader sees of an answer who may not get the pods of all namespaces: counts, sizes and nodes, and fields.

Decided on fields alone: a pod of a namespace whose pods the reader may not get loses its name, and a sentence that may
name such a pod is left out. Which sentences do is known from the fields beside them: what the plugin is, what the cause
is, whose space is kept. Who may get all pods sees all.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from neuron_scheduler.explain.answers import Change, Explanation, LeavingPod, NodeGroup, Verdict
from neuron_scheduler.model.wording import counted
from neuron_scheduler.scheduling.plugins import neuron_topology, node_ports
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.serving.access import MOST_NAMESPACES, Names, Reader

NO_NAMES: Final = "The names of pods are left out. A token adds the names of those pods that its user may get."
SOME_NAMES: Final = "The names of pods in {} are left out: you may not get the pods there."
UNASKED: Final = (
    f"The names of pods in {{}} more are left out: one question looks up your rights in {MOST_NAMESPACES} namespaces."
)
A_POD: Final = "a pod that you may not see"
LEFT_OUT: Final = "Sentences that may name pods which you may not see are left out."

_NAME_NONE: Final = (Cause.CAPACITY, Cause.FRAGMENTATION, Cause.INVALID_COUNT)
"""Causes for which Neuron's figures name no pod; for others they name holders whose ids are unknown."""


def as_seen(answer: Explanation, names: Names) -> Explanation:
    """Return why a pod waits, without what the reader may not see."""
    if names.shown is None:
        return answer
    bound = answer.verdict is Verdict.BOUND  # the notes on its node name pods with unknown ids
    seen = attrs.evolve(
        answer,
        groups=tuple(_group(group, names) for group in answer.groups),
        changes=tuple(_change(change, names) for change in answer.changes),
        notes=() if bound else answer.notes,
    )
    return seen if seen == answer else attrs.evolve(seen, notes=(*seen.notes, LEFT_OUT))


def namespaces_in(answer: Explanation) -> set[str]:
    """Return the namespaces of all pods that an answer names in fields."""
    kept_for = (key for group in answer.groups for key in group.kept_for)
    leaving = (pod.namespace for change in answer.changes for pod in change.pods)
    return {*(key.partition("/")[0] for key in kept_for), *leaving}


def name_notes(reader: Reader, names: Names) -> tuple[str, ...]:
    """Return what a reader has to know about names that are left out."""
    return tuple(_name_notes(reader, names))


def _name_notes(reader: Reader, names: Names) -> Iterator[str]:
    if reader.user is None:
        yield NO_NAMES
    if names.hidden:
        yield SOME_NAMES.format(counted(names.hidden, "namespace"))
    if names.unasked:
        yield UNASKED.format(counted(names.unasked, "namespace"))


def _group(group: NodeGroup, names: Names) -> NodeGroup:
    kept_for = tuple(key if key.partition("/")[0] in names else A_POD for key in group.kept_for)
    silent = kept_for or group.plugin == node_ports.NAME
    silent = silent or (group.plugin == neuron_topology.NAME and group.cause not in _NAME_NONE)
    return attrs.evolve(group, arithmetic="" if silent else group.arithmetic, kept_for=kept_for)


def _change(change: Change, names: Names) -> Change:
    """Return a change; one about pods that the reader may not see says how many, and has no command."""
    if all(pod.namespace in names for pod in change.pods):
        return change
    sentence = (
        f"{counted(len(change.pods), 'pod')} of {change.node_name or 'one node'} end; you may not see all of them."
    )
    pods = tuple(_leaving(pod, names) for pod in change.pods)
    return attrs.evolve(change, sentence=sentence, command="", pods=pods)


def _leaving(pod: LeavingPod, names: Names) -> LeavingPod:
    return pod if pod.namespace in names else attrs.evolve(pod, namespace="", name="", budgets=())
