"""What happens to requests: nodes join, pods leave, the API server refuses, another leader takes over."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from neuron_scheduler.capacity.limits import Limits
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.requests import Outcome, Request
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.capacity_policy import Policy
from neuron_scheduler.controllers.machine_requests import MachineRequests
from neuron_scheduler.kube.writes.machine_order import MachineOrder
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, Node
from neuron_scheduler.model.pod import Pod, PodCondition
from neuron_scheduler.model.resources import NEURON_DEVICE
from neuron_scheduler.model.selectors import NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry.metrics import Metrics
from tests.support.builders import node, pod
from tests.support.harness import cluster_of

TRN1 = "trn1.32xlarge"
LIMITS = Limits(machines=9, devices=999, machines_per_namespace=9, devices_per_namespace=999)
SEEN = PodCondition("False", "Unschedulable")


@attrs.define(eq=False)
class World:
    """
    A cluster and a queue, and stand-ins for what writes and reports.

    Attributes:
        told: Events by pod and kind.
        ended: outcomes of requests.
        let_through: names of requests whose objects are gone.
        wanted: the objects by name, and whether they are to exist.
    """

    now: float = 0.0
    cluster: Cluster = attrs.field(factory=lambda: cluster_of([node("old", TRN1)]))
    queue: SchedulingQueue = attrs.field(factory=SchedulingQueue)
    told: list[tuple[str, str, str]] = attrs.field(factory=list)
    machines: Mapping[str, str] = attrs.field(factory=dict)
    ended: list[str] = attrs.field(factory=list)
    let_through: list[str] = attrs.field(factory=list)
    asks: bool = True
    requests: MachineRequests = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Build what is tested."""
        world: Any = self
        policy = Policy(form=world, wait=60.0, pause=60.0, give_up=1200.0, limits=LIMITS, image="pause")
        metrics: Any = attrs.make_class("Counts", ["capacity_request_ended"])(self.ended.append)
        self.requests = MachineRequests(
            cluster=self.cluster,
            queue=self.queue,
            scheduler_names={"my-scheduler"},
            policies={"my-scheduler": policy} if self.asks else {},
            placeholders=world,
            reporter=world,
            metrics=metrics,
            clock=lambda: self.now,
            let_through=self.let_through.append,
        )

    async def found(self) -> list[Pod]:
        """Return nothing."""
        return []

    def capacity_asked(self, machines: Mapping[str, str]) -> None:
        """Remember them."""
        self.machines = machines

    def capacity_requested(self, pod: Pod, machine: str, shortage: str) -> None:
        """Remember it."""
        self.told.append((pod.name, "requested", f"{machine}: {shortage}"))

    def capacity_given_up(self, pod: Pod, message: str) -> None:
        """Remember it."""
        self.told.append((pod.name, "given up", message))

    def capacity_refused(self, pod: Pod, message: str) -> None:
        """Remember it."""
        self.told.append((pod.name, "refused", message))

    def waiting(self, *names: str) -> tuple[Pod, ...]:
        """Add pods to the queue, and return them."""
        pods = tuple(pod(name, devices=4, scheduler_name="my-scheduler") for name in names)
        for each in pods:
            self.queue.add(each, self.now)
        return pods

    def ask(self, *names: str) -> Request:
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
        self.requests.noticed(pod.uid, node_name)

    @property
    def wanted(self) -> dict[str, bool]:
        """The objects that are there or may be, and whether they are to exist."""
        return {name: standing.wanted for name, standing in self.requests.orders._standing.items()}


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
    """The order has the amounts and the pods; each pod gets an Event."""
    request = world.ask("a", "b")
    order = world.requests.orders._standing[request.name].order
    assert isinstance(order, MachineOrder)
    assert (order.scheduler_name, order.namespace, order.image) == ("my-scheduler", "default", "pause")
    assert (order.requests, order.pods) == ({NEURON_DEVICE: 16}, ("uid-a", "uid-b"))
    assert world.told == [(name, "requested", f"{TRN1}: 12 free") for name in "ab"]
    world.requests.report()
    assert world.machines == {"uid-a": TRN1, "uid-b": TRN1}


def test_a_node_joins_and_serves(world: World) -> None:
    """The object is removed at once, although the node is not ready; Bindings to the node wait until it is gone."""
    request = world.ask("a", "b")
    world.join(node("new", TRN1, devices=0))
    assert world.wanted == {request.name: False}
    assert not request.usable
    world.cluster.put_node(node("new", TRN1))
    world.requests.node_changed("new")
    assert request.usable
    assert world.requests.arrivals.closing("new") == request.name
    world.requests.withdrawn(request.name)
    assert world.let_through == [request.name]
    assert world.requests.arrivals.closing("new") == ""
    world.requests.gone("uid-a")
    assert not world.ended
    world.requests.noticed("uid-b", "new")
    assert world.ended == ["served"]


def test_pods_that_leave(world: World) -> None:
    """The request ends with its last pod, wherever that went."""
    request = world.ask("a", "b")
    world.requests.gone("uid-a")
    world.requests.noticed("uid-b", "")
    assert world.wanted == {request.name: True}
    world.requests.noticed("uid-b", "elsewhere")
    assert (world.wanted, world.ended) == ({request.name: False}, ["withdrawn"])


def commitment(name: str, node_name: str) -> Any:
    """Return what stands in for a decision about a pod, of which little is asked."""
    there = pod(name, devices=4, scheduler_name="my-scheduler")
    return attrs.make_class("Commitment", ["pod", "node_name"])(there, node_name)


def test_the_last_pods_go_elsewhere(world: World) -> None:
    """The Binding of the last one waits for the deletion, also if the watch does not show the other one's yet."""
    request = world.ask("a", "b")
    world.cluster.put_pod(pod("a", devices=4, on="old", ids=range(4)))
    assert world.requests.behind(commitment("a", "old")) == ""
    world.cluster.put_pod(pod("b", devices=4, on="old", ids=range(4, 8)))
    assert world.requests.behind(commitment("b", "old")) == request.name
    assert (world.wanted, world.ended) == ({request.name: False}, ["withdrawn"])


def test_a_binding_to_the_machine_that_is_refused(world: World) -> None:
    """The machine has not served: it goes unused, and the pod waits longer each time before the next one."""
    for level in (1, 2, 3):
        request = world.ask("a")
        world.join(node("new", TRN1))
        world.cluster.put_pod(pod("a", devices=4, on="new", ids=range(4)))
        assert world.requests.behind(commitment("a", "new")) == request.name
        world.now += 100.0
        world.requests.deadlines.look()
        world.cluster.remove_pod("uid-a")  # the Binding was refused
        assert world.requests.table.get(request.name) is request
        world.cluster.remove_node("new")
        world.requests.node_gone("new")
        assert world.ended == ["given_up"] * level
        wait = world.requests.table.waits.of("uid-a", world.now)
        assert wait is not None
        assert wait.until - world.now == 60.0 * 2 ** (level - 1)
        world.now = wait.until


def test_a_machine_that_does_not_serve_in_time(world: World) -> None:
    """It is given up with an Event for each pod that waits, and the pods wait before the next one."""
    request = world.ask("a")
    world.now = 1199.0
    world.requests.deadlines.look()
    assert not world.ended
    world.now = 1200.0
    world.requests.deadlines.look()
    assert (world.wanted, world.ended) == ({request.name: False}, ["given_up"])
    said = f"Gave up the {TRN1} that the autoscaler was asked for: it has not served its pods within 20m: no node has"
    assert world.told[-1] == ("a", "given up", f"{said} joined for it")
    assert not world.requests.table.may_ask("uid-a", 2399.0)
    assert world.requests.table.may_ask("uid-a", 2400.0)


def test_who_is_told(world: World) -> None:
    """Only pods that still wait get an Event; the order is the same each time, whatever that of the uids is."""
    for told, tell in (("given up", world.requests.deadlines.look), ("refused", None)):
        request = world.ask(*"dcba")
        world.queue.remove("uid-c")
        world.now += 1200.0
        if tell is None:
            world.requests.declined(request.name, "no")
        else:
            tell()
        assert [name for name, kind, _ in world.told if kind == told] == ["a", "b", "d"]


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
    world.requests.deadlines.look()
    assert not world.ended
    world.cluster.put_pod(pod("other", devices=16, on="new", ids=range(16)))
    world.requests.deadlines.look()
    assert world.ended == ["withdrawn"]
    assert world.requests.table.may_ask("uid-a", world.now)


def test_pods_that_autoscalers_leave_alone(world: World) -> None:
    """If the profile says so, a Binding to a machine that was asked for has Karpenter's annotation."""
    world.ask("a")
    world.join(node("new", TRN1))

    def annotations(node_name: str) -> Mapping[str, str]:
        commitment: Any = attrs.make_class("Commitment", ["pod", "node_name"])(
            pod("a", scheduler_name="my-scheduler"), node_name
        )
        return world.requests.arrivals.annotations(commitment)

    assert annotations("new") == {}
    policy = attrs.evolve(world.requests.policies["my-scheduler"], do_not_disrupt="true")
    world.requests.arrivals.policies = {"my-scheduler": policy}
    assert annotations("new") == {"karpenter.sh/do-not-disrupt": "true"}
    assert annotations("old") == {}


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
    world.requests.orders.seen(request.name, mine.uid)
    world.requests.gone("uid-a")
    world.requests.orders._gone(request.name)
    world.requests.seen(mine)
    world.requests.gone(mine.uid)
    assert world.wanted == {}
    assert world.ended == ["withdrawn"]


def test_a_late_watch_and_a_name_that_is_used_again(world: World) -> None:
    """What the watch shows of the earlier object of a name is not taken for the present one."""
    request = world.ask("a")
    earlier = placeholder(request.name, uid="earlier")
    world.requests.orders.seen(request.name, earlier.uid)
    world.requests.end(request, Outcome.WITHDRAWN)
    world.requests.orders._gone(request.name)
    again = world.ask("a")
    assert again.name == request.name
    for seen in ("", "present"):  # before and after the answer to its creation
        world.requests.orders.seen(again.name, seen)
        world.requests.seen(earlier)
        world.requests.gone(earlier.uid)
        assert world.wanted == {again.name: True}
    assert world.ended == ["withdrawn"]


@pytest.mark.parametrize("end", ["served otherwise", "refused", "taken over"])
def test_what_cannot_be_deleted_counts_for_the_limits(world: World, end: str) -> None:
    """The autoscaler goes on buying for it; only when it is gone another machine may be asked for."""
    if end == "taken over":
        world.requests.seen(placeholder(terminating=True))
    else:
        request = world.ask("a")
        if end == "refused":
            world.requests.declined(request.name, "no")
        else:
            world.requests.gone("uid-a")
    assert not len(world.requests.table)
    (name,) = world.wanted
    world.requests.withdrawn(name)  # it cannot be deleted now: Bindings go on
    ((owner, need),) = world.requests.outstanding
    assert (owner.scheduler_name, need.devices) == ("my-scheduler", 16)
    world.requests.orders._gone(name)
    assert world.requests.outstanding == []


def test_somebody_deletes_or_binds_a_placeholder(world: World) -> None:
    """The request is given up; a placeholder that was bound is deleted."""
    for deed in ("delete", "bind"):
        request = world.ask(deed)
        mine = placeholder(request.name)
        world.requests.seen(mine)
        if deed == "delete":
            world.requests.gone(mine.uid)
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
    world.requests.gone(placeholder().uid)
    assert world.wanted == {}
    assert world.requests.outstanding == []


@pytest.mark.parametrize(
    "fields", [{"by": "another"}, {"labels": {}}, {"namespace": "default"}], ids=["another's", "no label", "elsewhere"]
)
def test_a_bound_pod_that_is_no_placeholder_of_ours(world: World, fields: dict[str, Any]) -> None:
    """It is left alone."""
    world.bind(placeholder(**fields), "old")
    assert world.wanted == {}


def test_a_takeover() -> None:
    """A follower remembers placeholders, and takes them over when it leads; a node that has joined since serves one."""
    world = World()
    world.requests.seen(placeholder("capacity-x-0"))
    world.requests.seen(placeholder("capacity-y-0"))
    world.requests.seen(placeholder("not-ours", namespace="default"))
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
    world.requests.seen(found)
    assert world.wanted == want
    assert not len(world.requests.table)


@pytest.mark.parametrize("unfinished", [True, False])
def test_what_no_watch_shows(*, unfinished: bool) -> None:
    """A template whose buffer is there is a request; without it nobody buys, so it is removed, and asked for again."""
    world = World()
    form: Any = World()
    world.requests.lead([(placeholder(scheduled=None if unfinished else SEEN), form)])
    assert world.wanted == {"capacity-x-0": not unfinished}
    assert len(world.requests.table) == (not unfinished)
    assert world.requests.orders._standing["capacity-x-0"].form is form


def test_a_template_with_the_name_of_a_placeholder(world: World) -> None:
    """The placeholder's own uid is remembered: without it, it could not be deleted."""
    request = world.ask("a")
    world.requests.seen(placeholder(request.name, uid="pod"))
    form: Any = World()
    world.requests.lead([(placeholder(request.name, uid="template"), form)])
    assert world.requests.orders._standing[request.name].uid == "pod"
    assert world.wanted == {request.name: True}


@pytest.mark.parametrize("visible", [True, False])
def test_a_profile_that_asks_no_more(*, visible: bool) -> None:
    """What an earlier process asked for is removed, in whichever form."""
    world = World(asks=False)
    form: Any = World()
    world.requests.lead([] if visible else [(placeholder(), form)])
    if visible:
        world.requests.seen(placeholder())
    assert world.wanted == {"capacity-x-0": False}


def test_the_real_metrics_count_outcomes() -> None:
    """The stand-in has the name of the real one."""
    metrics = Metrics()
    metrics.capacity_request_ended("served")
    assert 'capacity_requests_ended_total{outcome="served"} 1.0' in metrics.exposition()[0].decode()


def test_a_profile_that_has_another_name_now(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """What its earlier name asks for is left alone, and one line says so."""
    for _ in range(2):
        world.requests.seen(placeholder(by="renamed"))
    assert world.wanted == {}
    assert caplog.messages == ["A placeholder is left alone: no profile has its scheduler name"]
