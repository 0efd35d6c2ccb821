"""A replica that leads in the model of a cluster in which machines are asked for: all that it knows dies with it."""

from collections.abc import Iterable
from typing import Any, Final

import attrs

from neuron_scheduler.capacity.machines import MachineRequests
from neuron_scheduler.capacity.requester import CapacityRequester
from neuron_scheduler.cluster import fold
from neuron_scheduler.cluster.changes import Change, PodPending
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.profile_config import CapacityRequests
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.queueing import new_queue

SEEN: Final = PodCondition("False", "Unschedulable")
PROFILE: Final = default_profile("my-scheduler")
SETTINGS: Final = CapacityRequests(
    max_machines=3, max_devices=64, max_machines_per_namespace=3, max_devices_per_namespace=64, image="pause"
)
NAMESPACE: Final = "neuron-scheduler-capacity"


@attrs.define(eq=False)
class Scheduler:
    """
    One replica: all that it knows dies with it.

    Attributes:
        api: creates, marks and deletes placeholders; has the time, and takes unexpected errors.
        told: Events by pod and reason.
        ended: outcomes of requests.
    """

    api: Any
    settings: CapacityRequests = SETTINGS
    asks: bool = True
    leads: bool = True
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=new_queue)
    told: list[tuple[str, str, str]] = attrs.field(factory=list)
    ended: list[str] = attrs.field(factory=list)
    sent: list[Commitment] = attrs.field(factory=list)
    machines: MachineRequests = attrs.field(init=False)
    rounds: CapacityRequester = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Build the real parts."""
        this: Any = self
        self.machines = MachineRequests(
            cluster=self.cluster,
            queue=self.queue,
            scheduler_names={"my-scheduler"},
            policies={"my-scheduler": self.settings} if self.asks else {},
            writer=self.api,
            reporter=this,
            metrics=this,
            clock=self.api.clock,
            errors=UnexpectedErrors(self.api.surprises.append),
        )
        profiles = {"my-scheduler": PROFILE}
        self.rounds = CapacityRequester(machines=self.machines, profiles=profiles, may_bind=lambda: self.leads)

    def report_capacity(self, pod: Pod, reason: str, note: str, **_: Any) -> None:
        self.told.append((pod.name, reason.removeprefix("NeuronCapacity"), note))

    def count_capacity_request(self, outcome: str) -> None:
        self.ended.append(outcome)

    def refuse(self, new: Pod, cause: Cause = Cause.FRAGMENTATION) -> None:
        """Add a pod to the queue, and refuse it."""
        self.queue.add(new, self.api.clock())
        queued = self.queue.pop(self.api.clock())
        assert queued is not None
        self.queue.put_back_refused(queued, frozenset({"NeuronTopology"}), self.api.clock(), cause=cause)

    # What the watches show

    def tell(self, changes: Iterable[Change]) -> None:
        for change in changes:
            if isinstance(change, self.machines.OBSERVES):
                self.machines.observe(change)

    def pod_came(self, new: Pod) -> None:
        """Do what the handler of pods does with a pod that is new or has changed."""
        if new.node_name:
            self.queue.remove(new.uid)
        if new.node_name or new.namespace == NAMESPACE:
            self.tell(fold.put(self.cluster, None, new))
        elif new.uid not in self.queue and not self.cluster.is_assumed(new.uid):
            self.refuse(new)

    def show(self, placeholder: Pod) -> None:
        """Show a placeholder as it is, or was."""
        bound = placeholder.node_name
        self.tell(fold.put(self.cluster, None, placeholder) if bound else [PodPending(placeholder)])

    def pod_went(self, uid: str) -> None:
        """Do what the handler does with a pod that is gone."""
        self.queue.remove(uid)
        held = self.cluster.pod_info(uid)
        gone = self.machines._seen.get(uid) if held is None else held.pod
        self.tell(() if gone is None else fold.remove(self.cluster, gone))

    def node_came(self, new: Node) -> None:
        self.tell(fold.put(self.cluster, None, new))

    def node_went(self, name: str) -> None:
        self.cluster.remove_node(name)

    # Attempts

    def place(self) -> None:
        """Decide all pods that wait, and send their Bindings."""
        for queued in list(self.queue.pods()):
            waiting = queued.pod
            if self.cluster.node_of(waiting.uid) is not None:
                continue
            decision = schedule_pod(self.cluster, waiting, PROFILE)
            if isinstance(decision, Decision):
                cores = decision.placement.cores if decision.placement else NO_CORES
                self.cluster.assume(attrs.evolve(waiting, node_name=decision.node_name), cores)
                requester: Any = attrs.make_class("Requester", ["pod", "waits"])(waiting, True)
                ids = decision.placement.ids if decision.placement else ()
                annotations = {AWS_NEURON_IDS: ",".join(map(str, ids))}
                commitment = Commitment(requester, waiting, annotations, decision, self.api.clock())
                self.sent.append(commitment)
