"""
The step that makes a decision count at once: the pod is on its node for every later decision.

Nothing here awaits, and neither does what comes between the decision and this step, so no event comes in between.
Does not decide or send anything.
"""

from collections.abc import Callable, Mapping

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.binding_outcomes import note_freed
from neuron_scheduler.model.annotations import OUR_LEADER
from neuron_scheduler.model.pod import Pod, placed
from neuron_scheduler.neuron.annotations import annotations_for
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue


@attrs.frozen(eq=False, kw_only=True)
class Assumptions:
    """
    Assumes decisions.

    Attributes:
        recheck: drops the nominations on a node that cannot be kept any more.
        identity: the holder of the Lease, for the fence at the API server; empty without leader election.
    """

    cluster: Cluster
    queue: SchedulingQueue
    recheck: Callable[[str], None]
    identity: str = ""

    def assume(self, pod: Pod, decision: Decision) -> Mapping[str, str]:
        """
        Take the space in the cluster before the API server knows, and return the annotations of the Binding.

        Raises:
            ValueError: the pod is on a node already, or the decision is out of date.
        """
        allocation = self._allocation(pod, decision)
        nominated = self.cluster.nomination(pod.uid)
        assumed = placed(pod, decision.node_name, allocation)
        self.cluster.assume(assumed, decision.placement.cores if decision.placement else NO_CORES)
        self.queue.note(ClusterEvent.ASSIGNED_POD_ADDED, assumed)
        self.recheck(decision.node_name)
        if nominated is not None:  # the nominated space may be free for other pods
            note_freed(self.cluster, self.queue, pod, nominated[0])
        return {**allocation, OUR_LEADER: self.identity} if self.identity else allocation

    def _allocation(self, pod: Pod, decision: Decision) -> Mapping[str, str]:
        """Return the annotations with the devices and cores that the pod is given."""
        node_info = self.cluster.node(decision.node_name)
        if decision.placement is None or node_info is None or node_info.machine is None:
            return {}
        return annotations_for(
            pod=pod,
            machine=node_info.machine,
            placement=decision.placement,
            node_name=decision.node_name,
        )
