"""
A pod is bound to a node that could take it: taints, cordon, selectors, and enough of each resource.

The judgement is lenient: any state of the node is as good that may have been current at the decision, and pods of other
schedulers count only if they were bound so long ago that we must have been told.
"""

import attrs

from tests.simulation.oracles.change import Change, Object, Oracle, named
from tests.simulation.oracles.node_rules import refusals
from tests.simulation.oracles.node_states import NodeStates
from tests.simulation.oracles.reading import bound_by_us, has_ended, node_name_of


@attrs.define(eq=False, kw_only=True)
class NodesThatFit(Oracle):
    """
    Tries each of our Bindings on its node.

    Attributes:
        nodes: the states of the nodes; it must see each change before this oracle.
    """

    nodes: NodeStates
    _on: dict[str, dict[str, tuple[Object, float, bool]]] = attrs.field(factory=dict)
    """By the node's name and the pod's uid: the pod, when it was bound, and whether we did that."""
    _where: dict[str, str] = attrs.field(factory=dict)

    def changed(self, change: Change) -> None:
        """Follow the pods, and judge a Binding of ours."""
        if change.kind != "Pod":
            return
        pod = change.after
        if pod is None or has_ended(pod):
            self._on.get(self._where.pop(change.uid, ""), {}).pop(change.uid, None)
        elif node_name_of(pod) and change.uid not in self._where:
            self._bound(change, pod)

    def _bound(self, change: Change, pod: Object) -> None:
        name, ours = node_name_of(pod), bound_by_us(change.previous, pod)
        here = self._on.setdefault(name, {})
        if ours:
            known = self.nodes.decided_at(change) - self.nodes.told_within
            others = [other for other, since, by_us in here.values() if by_us or since <= known]
            verdicts = [list(refusals(node, pod, others)) for node in self.nodes.since_decision(change)]
            if not verdicts:
                self.violated(f"{named(pod)} is bound to {name}, which did not exist")
            elif all(verdicts):
                self.violated(f"{named(pod)} is bound to {name}: {'; '.join(min(verdicts))}")
        self._where[change.uid] = name
        here[change.uid] = (pod, change.at, ours)
