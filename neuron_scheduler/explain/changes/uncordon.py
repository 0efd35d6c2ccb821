"""
UNCORDON: the cordon of one node is lifted, and that node then takes the pod.

Smallest: one node, since no pod needs two. Of several nodes, the oldest is named first. Lifting a cordon also removes
the taint that Kubernetes adds to a cordoned node. Does not say whether the node is fit for pods: somebody cordoned it
for a reason that no object tells.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers.explanation import Change, ChangeKind
from neuron_scheduler.explain.changes.question import Found, Note, Question, kubectl
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import Toleration
from neuron_scheduler.model.wording import counted
from neuron_scheduler.scheduling.plugins import node_unschedulable

_MOST_TRIED: Final = 16
_CORDON: Final = node_unschedulable.CORDON.key
_NOT_ALL: Final = Note(f"Only {_MOST_TRIED} of the cordoned nodes were tried.")


def uncordoned(node: Node) -> Node:
    """Return a node without its cordon."""
    taints = tuple(taint for taint in node.taints if taint.key != _CORDON)
    return attrs.evolve(node, unschedulable=False, taints=taints)


def find(question: Question) -> Iterator[Found]:
    """Yield the oldest node that takes the pod once its cordon is lifted."""
    view = question.cluster.view
    tolerant = attrs.evolve(question.pod, tolerations=(*question.pod.tolerations, Toleration(_CORDON, exists=True)))
    yield from question.warmed_up(tolerant)
    cordoned = node_unschedulable.cordoned(view) & view.live
    if not cordoned:
        return
    likely = cordoned if question.reads_other_nodes else question.fitting(tolerant, cordoned)
    names = [view.row(slot).node.name for slot in islice(view.oldest_first(likely), _MOST_TRIED)]
    more = 0 if question.reads_other_nodes else likely.bit_count() - 1
    yield None
    for name in names:
        node_info = question.cluster.node(name)
        if node_info is not None and question.decision_with(_uncordoned_row(node_info)) is not None:
            yield _change(name, node_info, more)
            return
        yield None
    if len(names) == _MOST_TRIED:
        yield _NOT_ALL


def _uncordoned_row(node_info: NodeInfo) -> NodeInfo:
    return attrs.evolve(node_info, node=uncordoned(node_info.node))


def _change(name: str, node_info: NodeInfo, more: int) -> Change:
    others = f" So would {counted(more, 'more cordoned node')}." if more else ""
    return Change(
        ChangeKind.UNCORDON,
        f"Lift the cordon of {name}: it then takes the pod.{others}",
        command=kubectl("uncordon", name, names=(name,)),
        node_name=name,
        instance_type=node_info.node.instance_type,
    )
