"""A replica that leads in the model of a cluster in which machines are asked for: all that it knows dies with it."""

from typing import TYPE_CHECKING, Any, Final

import attrs

from neuron_scheduler.capacity.limits import Limits
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.controllers.capacity_requester import CapacityRequester
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.controllers.earlier_requests import EarlierRequests
from neuron_scheduler.controllers.machine_requests import MachineRequests
from neuron_scheduler.controllers.withdrawal_fence import WithdrawalFence
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

if TYPE_CHECKING:
    from tests.controllers.capacity_model import Model


SEEN: Final = PodCondition("False", "Unschedulable")
PROFILE: Final = default_profile("my-scheduler")
LIMITS: Final = Limits(machines=3, devices=64, machines_per_namespace=3, devices_per_namespace=64)
NAMESPACE: Final = "neuron-scheduler-capacity"


@attrs.define(eq=False)
class Scheduler:
    """One replica that leads: all that it knows dies with it."""

    model: "Model"
    cluster: Cluster = attrs.field(factory=Cluster)
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    ended: list[str] = attrs.field(factory=list)
    sent: list[Commitment] = attrs.field(factory=list)
    held: dict[str, float] = attrs.field(factory=dict)
    machines: MachineRequests = attrs.field(init=False)
    rounds: CapacityRequester = attrs.field(init=False)
    fence: WithdrawalFence = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Build the real parts."""
        this: Any = self
        errors = UnexpectedErrors(self.model.surprises.append)
        clock = self.model.clock
        self.fence = WithdrawalFence(
            cluster=self.cluster, clock=clock, send=self.send, settle=self.settle, errors=errors
        )
        policy = Policy(form=self.model, wait=60.0, pause=60.0, give_up=1200.0, limits=LIMITS, image="pause")
        self.machines = MachineRequests(
            cluster=self.cluster,
            queue=self.queue,
            scheduler_names={"my-scheduler"},
            policies={"my-scheduler": policy},
            placeholders=self.model,
            reporter=this,
            metrics=this,
            clock=clock,
            let_through=self.fence.withdrawn,
            errors=errors,
        )
        self.machines.orders.random = lambda: 0.0
        self.fence.behind = self.machines.behind
        self.rounds = CapacityRequester(
            machines=self.machines,
            cluster=self.cluster,
            queue=self.queue,
            profiles={"my-scheduler": PROFILE},
            policies={"my-scheduler": policy},
            clock=clock,
            may_ask=lambda: True,
            earlier=EarlierRequests(in_use=[], namespaces=(), clock=clock),
            errors=errors,
        )

    # What the reporter and the metrics are told

    def capacity_asked(self, *_: Any) -> None:
        """Ignore it."""

    capacity_requested = capacity_given_up = capacity_refused = capacity_limited = capacity_asked

    def capacity_request_ended(self, outcome: str) -> None:
        """Remember it."""
        self.ended.append(outcome)

    # What the watches show

    def pod_came(self, new: Pod) -> None:
        """Do what the handler of pods does with a pod that is new or has changed."""
        if new.node_name:
            self.queue.remove(new.uid)
            self.cluster.put_pod(new)
            self.machines.noticed(new.uid, new.node_name)
        elif new.namespace == NAMESPACE:
            self.machines.seen(new)
        elif new.uid not in self.queue and not self.cluster.is_assumed(new.uid):
            self.queue.add(new, self.model.now)
            queued = self.queue.pop(self.model.now)
            assert queued is not None
            cause = Cause.FRAGMENTATION
            self.queue.unschedulable(queued, frozenset({"NeuronTopology"}), self.model.now, cause=cause)

    def pod_went(self, uid: str) -> None:
        """Do what the handler does with a pod that is gone."""
        self.queue.remove(uid)
        name = self.cluster.remove_pod(uid)
        self.machines.gone(uid)
        self.machines.noticed(uid, name or "")

    def node_came(self, new: Node) -> None:
        """Do what the handler of nodes does."""
        known = self.cluster.node(new.name)
        self.cluster.put_node(new)
        if known is None:
            self.machines.node_came(new)
        self.machines.node_changed(new.name)

    def node_went(self, name: str) -> None:
        """Do what the handler of nodes does."""
        self.cluster.remove_node(name)
        self.machines.node_gone(name)

    # Attempts

    def place(self) -> None:
        """Decide all pods that wait, and give the decisions to the fence."""
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
                commitment = Commitment(requester, waiting, annotations, decision, self.model.now)
                if self.fence.take(commitment):
                    self.send(commitment)
                else:
                    self.held[waiting.uid] = self.model.now

    def send(self, commitment: Commitment) -> None:
        """Note that a Binding may be sent."""
        held = self.held.pop(commitment.pod.uid, None)
        request = self.machines.table.of_node(commitment.node_name)
        late = held is not None and self.model.now - held >= 3.0
        if request is not None and not late and self.model.strict:
            assert request.name not in self.model.pods_by_name(), "a Binding overtakes the deletion"
        self.sent.append(commitment)

    def settle(self, commitment: Commitment, _outcome: object) -> None:
        """Forget a decision."""
        self.held.pop(commitment.pod.uid, None)
        self.cluster.forget(commitment.pod.uid)
