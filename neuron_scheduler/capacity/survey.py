"""
What a plan has to know of all nodes: which pods are about to go, and in which units the types are in use.

Does not keep an index: a plan is made once a minute, and looks at the rows a few at a time.
"""

from collections.abc import Generator, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.pod import Pod

_ROWS_A_STEP: Final = 100


@attrs.frozen
class Survey:
    """
    What was seen.

    Attributes:
        terminating: uids of the pods on nodes that are being deleted.
        resources: the resources by which pods ask for Neuron, by the label value of the type on whose nodes they are.
    """

    terminating: tuple[str, ...]
    resources: Mapping[str, frozenset[str]]

    def names(self, waiting: Iterable[Pod]) -> Mapping[str, frozenset[str]]:
        """Return the resources, with those that pods wait for under the empty text."""
        waited_for = frozenset(pod.neuron.resource for pod in waiting if pod.neuron is not None)
        return {**self.resources, "": waited_for}


def surveyed(view: View) -> Generator[None, None, Survey]:
    """Look at all nodes; the cluster must not change meanwhile."""
    terminating: list[str] = []
    resources: dict[str, set[str]] = {}
    for position, node_info in enumerate(view.rows(), start=1):
        in_use = resources.setdefault(node_info.node.labels.get(INSTANCE_TYPE_LABEL, ""), set())
        for uid, pod_info in node_info.pod_infos.items():
            pod = pod_info.pod
            if pod.terminating:
                terminating.append(uid)
            if pod.neuron is not None:
                in_use.add(pod.neuron.resource)
        if position % _ROWS_A_STEP == 0:
            yield
    return Survey(tuple(terminating), {name: frozenset(in_use) for name, in_use in resources.items()})
