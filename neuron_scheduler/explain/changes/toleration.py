"""
TOLERATION: the pod tolerates taints.

Smallest: the fewest taints, each tolerated by its key, value and effect, after which some node takes the pod. Of
several sets with as few taints, the one that opens most nodes is named first. Taints that say that a node is not fit
for pods, or is about to go, are never offered: the node needs repair or time, and a pod that tolerates them would fail
there. A note names them where they alone keep nodes from taking the pod.
"""

import json
from collections.abc import Iterator
from typing import Final, cast

import attrs

from neuron_scheduler.cluster.index.nodeset import NO_NODES, NodeSet
from neuron_scheduler.explain.answers.explanation import Change, ChangeKind
from neuron_scheduler.explain.changes.question import Found, Note, Question, kubectl, with_template
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Taint, Toleration
from neuron_scheduler.model.wording import counted, few, few_names
from neuron_scheduler.scheduling.plugins import node_unschedulable, taint_toleration

_MOST_TRIED: Final = 32
_NOT_ALL: Final = Note(f"Only {_MOST_TRIED} sets of taints were tried.")
_OF_A_STATE: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "aws-node-termination-handler/")
_OF_A_STATE_TOO: Final = frozenset(
    {
        "DeletionCandidateOfClusterAutoscaler",
        "ToBeDeletedByClusterAutoscaler",
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "karpenter.sh/unregistered",
        "node.cilium.io/agent-not-ready",
        "sagemaker.amazonaws.com/node-health-status",
    }
)

_Taints = frozenset[Taint]


def says_not_fit(taint: Taint) -> bool:
    """Return whether a taint tells the state of a node, and not for whom the node is."""
    return taint.key.startswith(_OF_A_STATE) or taint.key in _OF_A_STATE_TOO or taint.key.endswith("/agent-not-ready")


def toleration_of(taint: Taint) -> Toleration:
    """Return the toleration for one taint and no other."""
    return Toleration(taint.key, exists=not taint.value, value=taint.value, effect=taint.effect)


def tolerating(pod: Pod, taints: _Taints) -> Pod:
    """Return the pod with a toleration for each of the taints."""
    return attrs.evolve(pod, tolerations=(*pod.tolerations, *map(toleration_of, _in_order(taints))))


def find(question: Question) -> Iterator[Found]:
    """Yield the tolerations for the fewest taints."""
    view, pod = question.cluster.view, question.pod
    tolerant = attrs.evolve(pod, tolerations=(*pod.tolerations, Toleration(exists=True)))
    yield from question.warmed_up(tolerant)
    if not taint_toleration.untolerated(view, pod) & view.live:
        return
    opened = view.live if question.reads_other_nodes else question.fitting(tolerant, view.live)
    by_missing = _by_missing(question, node_unschedulable.open_nodes(view, pod, opened))
    offered = {taints: nodes for taints, nodes in by_missing.items() if not any(map(says_not_fit, taints))}
    yield from _notes(question, by_missing, offered)
    order = sorted(offered, key=lambda taints: (len(taints), -offered[taints].bit_count(), _details(taints)))
    yield None
    for taints in order[:_MOST_TRIED]:
        other = tolerating(pod, taints)
        yield from question.warmed_up(other)
        decision = question.decision(other)
        if decision is not None:
            yield _change(pod, taints, decision.node_name)
            return
        yield None
    if len(order) > _MOST_TRIED:
        yield _NOT_ALL


def _by_missing(question: Question, among: NodeSet) -> dict[_Taints, NodeSet]:
    """Return the nodes by the taints that the pod would have to tolerate besides."""
    lists, tolerations = taint_toleration.lists_of_taints(question.cluster.view), question.pod.tolerations
    by_missing: dict[_Taints, NodeSet] = {}
    for taints in cast(frozenset[tuple[Taint, ...]], lists.values):
        missing = frozenset(taint for taint in taints if not any(each.tolerates(taint) for each in tolerations))
        nodes = lists.get(taints) & among
        if missing and nodes:
            by_missing[missing] = by_missing.get(missing, NO_NODES) | nodes
    return by_missing


def _notes(question: Question, by_missing: dict[_Taints, NodeSet], offered: dict[_Taints, NodeSet]) -> Iterator[Note]:
    """Yield a note about the nodes whose taints are not for pods to tolerate."""
    unfit = NO_NODES
    keys: set[str] = set()
    for taints, nodes in by_missing.items():
        if taints not in offered:
            unfit |= nodes
            keys |= {taint.key for taint in taints if says_not_fit(taint)}
    if unfit and not question.reads_other_nodes:
        yield Note(
            f"{counted(unfit.bit_count(), 'node')} would do without the taint{'s' if len(keys) > 1 else ''} "
            f"{few_names(sorted(keys))}: repair or wait for them, a pod should not tolerate that."
        )


def _change(pod: Pod, taints: _Taints, node_name: str) -> Change:
    written = [_written(taint) for taint in _in_order(taints)]
    which = few(_details(taints))
    sentence = (
        f"Tolerate the taint{'s' if len(taints) > 1 else ''} {which}: the pod then goes to {node_name}. "
        f"In its spec: tolerations: {json.dumps(written)}."
    )
    return Change(
        ChangeKind.TOLERATION,
        with_template(sentence, pod),
        command=_patch(pod, written),
        node_name=node_name,
        detail=", ".join(_details(taints)),
    )


def _patch(pod: Pod, written: list[dict[str, str]]) -> str:
    """Return the command that adds tolerations to the pod: of a pod's spec, they are what may grow."""
    patch = (
        [{"op": "add", "path": "/spec/tolerations/-", "value": each} for each in written]
        if pod.tolerations
        else [{"op": "add", "path": "/spec/tolerations", "value": written}]
    )
    of = (pod.name, "--namespace", pod.namespace)
    return kubectl("patch", "pod", *of, "--type=json", "--patch", json.dumps(patch), names=(pod.name, pod.namespace))


def _written(taint: Taint) -> dict[str, str]:
    """Return the toleration in the API's fields; JSON is YAML too."""
    value = {"operator": "Equal", "value": taint.value} if taint.value else {"operator": "Exists"}
    return {"key": taint.key, **value, "effect": taint.effect.value}


def _detail(taint: Taint) -> str:
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect.value}"


def _details(taints: _Taints) -> list[str]:
    return [_detail(taint) for taint in _in_order(taints)]


def _in_order(taints: _Taints) -> list[Taint]:
    return sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect))
