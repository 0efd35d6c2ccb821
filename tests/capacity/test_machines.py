"""What happens to requests: nodes join, pods leave, the API server refuses, another leader takes over."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from neuron_scheduler.capacity.machines import MachineRequests
from neuron_scheduler.capacity.planning.requests import MachineNeed, MachineRequest, Outcome
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.settings.profile_config import CapacityRequests
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

TRN1 = "trn1.32xlarge"
SETTINGS = CapacityRequests(
    max_machines=9, max_devices=999, max_machines_per_namespace=9, max_devices_per_namespace=999, image="pause"
)
SEEN = PodCondition("False", "Unschedulable")


@attrs.define(eq=False)
class World:
    """
    A cluster and a queue, and stand-ins for what writes and reports.

    Attributes:
        told: Events by pod and kind.
        ended: outcomes of requests.
        wanted: the objects by name, and whether they are to exist.
    """

    now: float = 0.0
    cluster: Cluster = attrs.field(factory=lambda: cluster_of([node("old", TRN1)]))
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    told: list[tuple[str, str, str]] = attrs.field(factory=list)
    machines: Mapping[str, str] = attrs.field(factory=dict)
    ended: list[str] = attrs.field(factory=list)
    asks: bool = True
    surprises: list[str] = attrs.field(factory=list)
    settings: CapacityRequests = SETTINGS
    requests: MachineRequests = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Build what is tested."""
        world: Any = self
        metrics: Any = attrs.make_class("Counts", ["capacity_request_ended"])(self.ended.append)
        self.requests = MachineRequests(
            cluster=self.cluster,
            queue=self.queue,
            scheduler_names={"my-scheduler"},
            policies={"my-scheduler": self.settings} if self.asks else {},
            client=world,
            may_send=lambda: True,
            timeout=4.0,
            reporter=world,
            metrics=metrics,
            clock=lambda: self.now,
            errors=UnexpectedErrors(self.surprises.append),
        )

    def capacity_asked(self, machines: Mapping[str, str]) -> None:
        """Remember them."""
        self.machines = machines

    def capacity_requested(self, pod: Pod, machine: str, shortage: str) -> None:
        """Remember it."""
        self.told.append((pod.name, "requested", f"{machine}: {shortage}"))

    def capacity_ended(self, pod: Pod, reason: str, message: str) -> None:
        """Remember it."""
        kinds = {"NeuronCapacityGivenUp": "given up", "NeuronCapacityRefused": "refused"}
        self.told.append((pod.name, kinds[reason], message))

    def waiting(self, *names: str) -> tuple[Pod, ...]:
        """Add pods to the queue, and return them."""
        pods = tuple(pod(name, devices=4, scheduler_name="my-scheduler") for name in names)
        for each in pods:
            self.queue.add(each, self.now)
        return pods

    def ask(self, *names: str) -> MachineRequest:
        """Ask for a machine for pods that wait; return the request."""
        need = MachineNeed(
            instance_types=(TRN1,), silicon={NEURON_DEVICE: 16}, host={}, pods=self.waiting(*names), shortage="12 free"
        )
        self.requests.ask(need)
        return self.requests.table.all()[-1]

    def join(self, new: Node) -> None:
        """Let a node join."""
        self.cluster.put_node(new)
        self.requests.node_came(new)

    def bind(self, pod: Pod, node_name: str) -> None:
        """Let somebody bind a pod, as the handler of pods does."""
        self.cluster.put_pod(attrs.evolve(pod, node_name=node_name))
        self.requests.pod_bound(pod.uid)

    @property
    def wanted(self) -> dict[str, bool]:
        """The objects that are there or may be, and whether they are to exist."""
        return {name: known.wanted for name, known in self.requests.writer._known.items()}


@pytest.fixture
def world() -> World:
    """Return a cluster with one node, and nothing asked for; this replica leads."""
    world = World()
    world.requests.lead()
    return world


def placeholder(name: str = "capacity-x-0", *, by: str = "my-scheduler", **fields: Any) -> Pod:
    """Return a placeholder as the watch shows it."""
    labels = {
        "neuron-scheduler/placeholder": "true",
        "neuron-scheduler/requested-by": by,
        "neuron-scheduler/for-namespace": "team",
    }
    term = NodeSelectorTerm((Requirement(INSTANCE_TYPE_LABEL, Operator.IN, (TRN1,)),))
    defaults = {
        "namespace": "neuron-scheduler-capacity",
        "scheduler_name": "neuron-scheduler-capacity",
        "labels": labels,
        "required_terms": (term,),
        "scheduled": SEEN,
        "devices": 16,
        "created": 100.0,
    }
    return pod(name, **{**defaults, **fields})


def test_asking(world: World) -> None:
    """The placeholder has the amounts and the pods; each pod gets an Event."""
    request = world.ask("a", "b")
    manifest: Any = world.requests.writer._known[request.name].manifest
    (container,) = manifest["spec"]["containers"]
    assert (container["resources"]["requests"], container["image"]) == ({NEURON_DEVICE: "16"}, "pause")
    assert manifest["metadata"]["annotations"] == {"neuron-scheduler/capacity-request-pods": "uid-a,uid-b"}
    assert world.told == [(name, "requested", f"{TRN1}: 12 free") for name in "ab"]
    world.requests.report()
    assert world.machines == {"uid-a": TRN1, "uid-b": TRN1}


def test_a_pod_that_no_new_node_matches(world: World) -> None:
    """Nothing is written for it, and its owner is told."""
    (waiting,) = world.waiting("a")
    like = pod("like", required_terms=(NodeSelectorTerm(),))
    need = MachineNeed(instance_types=(TRN1,), silicon={NEURON_DEVICE: 16}, host={}, pods=(waiting,), pattern=like)
    world.requests.ask(need)
    assert (world.wanted, len(world.requests.table)) == ({}, 0)
    assert world.told[-1][:2] == ("a", "refused")


def test_a_node_joins_and_serves(world: World) -> None:
    """The placeholder is removed at once, although the node is not ready; the request ends with its last pod."""
    request = world.ask("a", "b")
    world.join(node("new", TRN1, devices=0))
    assert world.wanted == {request.name: False}
    assert not request.usable
    world.cluster.put_node(node("new", TRN1))
    world.requests.node_changed("new")
    assert request.usable
    world.requests.pod_gone("uid-a")
    assert not world.ended
    world.requests.pod_bound("uid-b")
    assert world.ended == ["served"]


def test_a_node_of_another_group(world: World) -> None:
    """A taint that the pods do not tolerate may pass, or stay: as long as it is there, the machine is not theirs."""
    request = world.ask("a")
    taint = Taint("team", Effect.NO_SCHEDULE)
    world.join(node("new", TRN1, taints=(taint, Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE))))
    assert world.wanted == {request.name: True}
    world.cluster.put_node(node("new", TRN1))
    world.requests.node_changed("new")
    assert (world.wanted, request.node_name) == ({request.name: False}, "new")


def test_a_machine_that_does_not_serve_in_time(world: World) -> None:
    """It is given up with an Event for each pod that waits, and the pods wait before the next one."""
    request = world.ask("a")
    world.now = 1199.0
    world.requests.look()
    assert not world.ended
    world.now = 1200.0
    world.requests.look()
    assert (world.wanted, world.ended) == ({request.name: False}, ["given_up"])
    said = f"Gave up the {TRN1} that the autoscaler was asked for: it has not served its pods within 20m: no node has"
    assert world.told[-1] == ("a", "given up", f"{said} joined for it")
    assert not world.requests.table.may_ask("uid-a", 2399.0)
    assert world.requests.table.may_ask("uid-a", 2400.0)


def test_a_node_that_goes_again(world: World) -> None:
    """The machine is given up at once."""
    world.ask("a")
    world.join(node("new", TRN1))
    world.requests.node_gone("new")
    assert world.ended == ["given_up"]
    assert world.told[-1][2].endswith("its node new is gone again")


def test_a_machine_that_others_took(world: World) -> None:
    """After the wait of its profile its pods are planned for again; a machine that nobody uses is waited for."""
    world.ask("a")
    world.join(node("new", TRN1))
    world.now = 60.0
    world.requests.look()
    assert not world.ended
    world.cluster.put_pod(pod("other", devices=16, on="new", ids=range(16)))
    world.requests.look()
    assert world.ended == ["withdrawn"]
    assert world.requests.table.may_ask("uid-a", world.now)


def test_an_api_server_that_refuses(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """One line for all refusals of one kind; the names of objects in it do not count."""
    for name in "ab":
        request = world.ask(name)
        world.requests.declined(request.name, f'pods "{request.name}" is forbidden: exceeded quota: q')
        assert world.told[-1][:2] == (name, "refused")
        assert world.told[-1][2].endswith('pods "..." is forbidden: exceeded quota: q')
        assert not world.requests.table.may_ask(f"uid-{name}", world.now)
    assert len([line for line in caplog.messages if "refuses a request" in line]) == 1
    world.requests.declined("nobody", "no")
    assert not world.ended


def test_a_watch_that_is_late(world: World) -> None:
    """A placeholder whose deletion was answered is not taken over when the watch shows it for the first time."""
    request = world.ask("a")
    mine = placeholder(request.name)
    world.requests.writer.seen(request.name, mine.uid)
    world.requests.pod_gone("uid-a")
    world.requests.writer._gone(request.name)
    world.requests.pod_seen(mine)
    world.requests.pod_gone(mine.uid)
    assert world.wanted == {}
    assert world.ended == ["withdrawn"]


def test_a_late_watch_and_a_name_that_is_used_again(world: World) -> None:
    """What the watch shows of the earlier object of a name is not taken for the present one."""
    request = world.ask("a")
    earlier = placeholder(request.name, uid="earlier")
    world.requests.writer.seen(request.name, earlier.uid)
    world.requests.end(request, Outcome.WITHDRAWN)
    world.requests.writer._gone(request.name)
    again = world.ask("a")
    assert again.name == request.name
    for seen in ("", "present"):  # before and after the answer to its creation
        world.requests.writer.seen(again.name, seen)
        world.requests.pod_seen(earlier)
        world.requests.pod_gone(earlier.uid)
        assert world.wanted == {again.name: True}
    assert world.ended == ["withdrawn"]


@pytest.mark.parametrize("end", ["served otherwise", "refused", "taken over"])
def test_what_cannot_be_deleted_counts_for_the_limits(world: World, end: str) -> None:
    """The autoscaler goes on buying for it; only when it is gone another machine may be asked for."""
    if end == "taken over":
        world.requests.pod_seen(placeholder(terminating=True))
    else:
        request = world.ask("a")
        if end == "refused":
            world.requests.declined(request.name, "no")
        else:
            world.requests.pod_gone("uid-a")
    assert not len(world.requests.table)
    (name,) = world.wanted
    ((owner, need),) = world.requests.outstanding
    assert (owner.scheduler_name, need.devices) == ("my-scheduler", 16)
    world.requests.writer._gone(name)
    assert world.requests.outstanding == []


def test_somebody_deletes_or_binds_a_placeholder(world: World) -> None:
    """The request is given up; a placeholder that was bound is deleted."""
    for deed in ("delete", "bind"):
        request = world.ask(deed)
        mine = placeholder(request.name)
        world.requests.pod_seen(mine)
        if deed == "delete":
            world.requests.pod_gone(mine.uid)
            assert request.name not in world.wanted
        else:
            world.bind(mine, "old")
            assert world.wanted == {request.name: False}
    assert world.ended == ["given_up", "given_up"]
    assert world.told[-1][2].endswith("what asked for it was bound to a node")


BOUND = "A placeholder was bound to a node, deleting it"


@pytest.mark.parametrize("leads", [True, False])
def test_a_placeholder_that_was_bound_before_it_was_seen(caplog: pytest.LogCaptureFixture, *, leads: bool) -> None:
    """It holds a machine and asks for none: the leader deletes it, and says so once; a follower remembers it."""
    world = World()
    if leads:
        world.requests.lead()
    for _ in range(2):
        world.bind(placeholder(), "old")
    assert world.wanted == ({"capacity-x-0": False} if leads else {})
    assert caplog.messages == [BOUND] * leads
    world.requests.lead()
    assert world.wanted == {"capacity-x-0": False}
    assert caplog.messages == [BOUND]
    assert not len(world.requests.table)
    assert len(world.requests.outstanding) == 1, "as long as it is there"
    world.requests.pod_gone(placeholder().uid)
    assert world.wanted == {}
    assert world.requests.outstanding == []


def test_a_takeover() -> None:
    """A follower remembers placeholders, and takes them over when it leads; a node that has joined since serves one."""
    world = World()
    world.requests.pod_seen(placeholder("capacity-x-0"))
    world.requests.pod_seen(placeholder("capacity-y-0"))
    world.requests.pod_seen(placeholder("not-ours", namespace="default"))
    assert not world.wanted
    world.cluster.put_node(node("young", TRN1, created=101.0))
    world.requests.lead()
    (second,) = world.requests.table.all()
    assert world.wanted == {"capacity-x-0": False, "capacity-y-0": True}
    assert world.ended == ["served"], "the node takes pods, and which pods it was for nobody knows"
    assert (second.owner.namespace, second.machine, second.need.silicon) == ("team", TRN1, {NEURON_DEVICE: 16})
    world.requests.node_changed("young")
    assert world.wanted["capacity-y-0"], "one node serves one request"


@pytest.mark.parametrize(
    ("found", "want"),
    [
        pytest.param(placeholder(scheduled=None), {"capacity-x-0": False}, id="no autoscaler has seen it"),
        pytest.param(placeholder(terminating=True), {"capacity-x-0": False}, id="it is being deleted"),
        pytest.param(placeholder(devices=0), {"capacity-x-0": False}, id="it asks for no machine"),
        pytest.param(placeholder(required_terms=None), {"capacity-x-0": False}, id="it asks for no type"),
        pytest.param(placeholder(by="another"), {}, id="another installation's"),
        pytest.param(placeholder(labels={}), {}, id="no placeholder"),
    ],
)
def test_what_is_not_taken_over(world: World, found: Pod, want: dict[str, bool]) -> None:
    """What is ours and of no use is removed; the rest is left alone."""
    world.requests.pod_seen(found)
    assert world.wanted == want
    assert not len(world.requests.table)


def test_a_profile_that_asks_no_more() -> None:
    """What an earlier process asked for is removed by one in which another profile asks."""
    world = World(asks=False)
    world.requests.lead()
    world.requests.pod_seen(placeholder())
    assert world.wanted == {"capacity-x-0": False}


def test_a_profile_that_has_another_name_now(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What its earlier name asks for is left alone, and one line says so."""
    for _ in range(2):
        world.requests.pod_seen(placeholder(by="renamed"))
    assert world.wanted == {}
    assert caplog.messages == ["A placeholder is left alone: no profile has its scheduler name"]
