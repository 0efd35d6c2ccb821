"""
Which nodes have joined for requests: one node for one request, and none that was there before.

As soon as its node joins, ready or not, what asks for the machine is deleted: it would make the autoscaler buy another
one. Refuses to end requests, and to give machines up: that is for `machine_requests`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.machine_node import takes_pods
from neuron_scheduler.capacity.requests import Request, Requests
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import slots_of
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.controllers.consolidation_brake import ConsolidationBrake
from neuron_scheduler.controllers.machine_orders import MachineOrders
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs

DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class MachineArrivals:
    """
    Gives nodes that join to the requests that they serve.

    Attributes:
        orders: the objects of the requests.
        policies: of the profiles that ask for machines, by scheduler name.
        clock: seconds that never jump.
        brake: is told which nodes have joined for requests.
        unneeded: called with a request whose machine takes pods when no pod is known that it is for.
    """

    cluster: Cluster
    table: Requests
    orders: MachineOrders
    policies: Mapping[str, Policy]
    clock: Callable[[], float]
    brake: ConsolidationBrake
    unneeded: Callable[[Request], None]
    _young: dict[str, float] = attrs.field(factory=dict, init=False)  # when nodes joined during requests, by name
    _given: set[str] = attrs.field(factory=set, init=False)  # names of nodes that have joined for a request
    _closing: dict[str, str] = attrs.field(factory=dict, init=False)  # requests whose objects are deleted, by node

    def is_given(self, node_name: str) -> bool:
        """Return whether a node has joined for a request."""
        return node_name in self._given

    def annotations(self, commitment: Commitment) -> Mapping[str, str]:
        """Return the annotations that a Binding to a machine that was asked for gets in addition."""
        policy = self.policies.get(commitment.pod.scheduler_name)
        if policy is None or not policy.do_not_disrupt or not self.is_given(commitment.node_name):
            return {}
        return {DO_NOT_DISRUPT: policy.do_not_disrupt}

    def closing(self, node_name: str) -> str:
        """Return the name of the request that a node has joined for while its objects may be there; else empty."""
        return self._closing.get(node_name, "")

    def came(self, node: Node) -> None:
        """Note that a node has joined."""
        self._given.discard(node.name)
        if len(self.table):
            self._look_at(node, self.clock())

    def changed(self, name: str) -> None:
        """Note that a node has changed: it may have got its labels, or may take pods now."""
        node_info = self.cluster.node(name) if name in self._young else None
        if node_info is not None:
            self._look_at(node_info.node, self._young[name])

    def gone(self, name: str) -> None:
        """Note that a node is gone."""
        self._young.pop(name, None)
        self._given.discard(name)

    def taken_over(self, placeholder: Pod, need: MachineNeed) -> None:
        """Look at the nodes that have joined since an earlier leader created a placeholder."""
        for node in self._younger_nodes(placeholder, need):
            self._look_at(node, self.clock())

    def withdrawn(self, name: str) -> None:
        """Note that the objects of a request are gone, or cannot be removed now."""
        for node_name in [node_name for node_name, closing in self._closing.items() if closing == name]:
            del self._closing[node_name]

    def forget_young(self) -> None:
        """Forget when nodes joined: no request is out that they could serve."""
        self._young.clear()

    def _younger_nodes(self, placeholder: Pod, need: MachineNeed) -> Iterable[Node]:
        nodes = self._nodes_of(need.instance_types)
        return [node for node in nodes if node.created > placeholder.created]  # times are whole seconds

    def _older_ones_like(self, node: Node) -> Iterable[Node]:
        """Return the nodes of the same type that were there before the requests that are out."""
        alike = self._nodes_of((node.labels.get(INSTANCE_TYPE_LABEL, ""),)) if node.taints else ()
        return [other for other in alike if other.name not in self._young]

    def _nodes_of(self, instance_types: tuple[str, ...]) -> Iterable[Node]:
        view = self.cluster.view
        return [view.row(slot).node for slot in slots_of(view.labelled(INSTANCE_TYPE_LABEL).any_of(instance_types))]

    def _look_at(self, node: Node, joined_at: float) -> None:
        """Stop asking for the machine that has come with a node."""
        self._young[node.name] = joined_at
        request = self.table.of_node(node.name)
        if request is None and node.name not in self._given:
            request = self.table.joined(node, joined_at, self._older_ones_like(node))
        if request is None:
            return
        self._given.add(node.name)
        self.brake.came(node.name, request.owner, request.need)
        if request.name in self.orders.names:
            self._closing[node.name] = request.name
            self.orders.withdraw(request.name)
        if takes_pods(node, request.need) and not request.usable:
            request.usable_since = self.clock()
            log.info(
                "Machine that was asked for takes pods", machine=request.machine, name=request.name, node=node.name
            )
            if not request.pods:
                self.unneeded(request)
