"""What drivers publish, and what a pod's claims mean to a scheduler."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.changes import PodPending
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.fold import put, resolve_pods
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.model.devices import (
    NEURON_DRIVER,
    PROTECTION,
    AttributeValue,
    ClaimAllocation,
    ClaimReference,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceRequest,
    DeviceTaintRule,
    MatchAttribute,
    ResourceClaim,
    ResourceSlice,
)
from neuron_scheduler.model.node import BOTH_ROADS, Node
from neuron_scheduler.model.pod import CLAIM_GATE, Pod
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.neuron.claims.published import DeviceSet
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, select_node
from neuron_scheduler.scheduling.groups.regions import room_of
from neuron_scheduler.scheduling.plugins.silicon_balance import STEPS, SURPLUS_OF_CPU, balance_size_of
from tests.support.builders import node, pod

NEURON = DeviceClass("k", NEURON_DRIVER, (f'device.driver == "{NEURON_DRIVER}"',))
ON_N = (NodeSelectorTerm((), (Requirement("metadata.name", Operator.IN, ("n",)),)),)
OTHER_DRIVER = "dra.net"
TRAIN = PodGroup(GroupKey(Dialect.COSCHEDULING, "default", "train"), 2, 2)


def device(number: int, driver: str = NEURON_DRIVER, **fields: Any) -> Device:
    name, attributes = f"d{number}", {f"{driver}/deviceId": number}
    return Device(driver, repr((name, fields)).encode(), name, attributes, {}, **fields)


def some_slice(*devices: Device, name: str = "s", **fields: Any) -> ResourceSlice:
    """Return the only slice of node n's pool."""
    given: dict[str, Any] = {
        "driver": NEURON_DRIVER,
        "pool": "n",
        "generation": 1,
        "slice_count": 1,
        "node_name": "n",
    } | fields
    return ResourceSlice(f"uid-{name}", name, devices=devices, **given)


def key_of(number: int) -> DeviceKey:
    return DeviceKey(NEURON_DRIVER, "n", f"d{number}")


def claim(name: str = "c", *requests: DeviceRequest, version: int = 1, has: Any = None, **fields: Any) -> ResourceClaim:
    """Return a claim on one device, if it does not say otherwise; `has` are numbers of devices."""
    allocation = None if has is None else ClaimAllocation(tuple(map(key_of, has)), ON_N)
    asked = requests or (DeviceRequest("r", NEURON_DRIVER),)
    return ResourceClaim(f"uid-{name}", "default", name, str(version), requests=asked, allocation=allocation, **fields)


def claiming(name: str = "p", *names: str, **fields: Any) -> Pod:
    return pod(name, claims=tuple(ClaimReference(each, each) for each in names or ("c",)), **fields)


def table(*objects: Any) -> Claims:
    """Return a table with the class, and more."""
    claims = Claims()
    for each in (NEURON, *objects):
        claims.put(each)
    return claims


def given_on(claims: Claims, where: Node | None = None) -> set[str]:
    """Return the names of the devices of node n that requests may get."""
    published: DeviceSet | None = claims.with_published(where or node("n")).published
    if published is None:
        return set()
    free = published.given & published.tolerated_by(())
    return {key.name for key in published.keys_of((free,), "n")}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, set()),
        ({"driver": NEURON_DRIVER, "pool": "n", "device": "d0"}, {"d1"}),
        ({"device": "d1"}, {"d0"}),
        ({"driver": OTHER_DRIVER}, {"d0", "d1"}),
        ({"driver": "", "pool": "", "device": ""}, {"d0", "d1"}),
    ],
)
def test_rules_taint_the_devices_that_they_select(fields: dict[str, str], want: set[str]) -> None:
    """Until they are gone; only nodes of those are made again."""
    claims = table(some_slice(device(0), device(1)))
    rule = DeviceTaintRule("u", "rule", (Taint("k", Effect.NO_SCHEDULE),), **fields)
    concerned = set() if want == {"d0", "d1"} else {"n"}
    assert claims.put(rule).published == concerned
    assert given_on(claims) == want
    assert claims.remove(rule).published == concerned
    assert given_on(claims) == {"d0", "d1"}


def test_a_node_has_one_road() -> None:
    """With counts, too, it has a fault; other drivers' devices do not take the counts away."""
    counts = node("n", "trn2.48xlarge")
    claims = table(some_slice(device(0)))
    assert claims.with_published(counts).neuron_fault == BOTH_ROADS
    assert claims.with_published(counts).published is None
    others = table(some_slice(device(0, OTHER_DRIVER), driver=OTHER_DRIVER))
    assert others.with_published(counts) == counts
    assert others.with_published(node("n")).published is not None


GENERATED = ClaimReference("r", "c", is_generated=True)


@pytest.mark.parametrize(
    ("references", "known", "want"),
    [
        ((ClaimReference("r", is_generated=True),), claim(), 'the claim of template "r" is not created yet'),
        ((ClaimReference("r", "none"),), claim(), 'resourceclaim "none" not found'),
        ((GENERATED,), claim(owner_uid="other"), 'resourceclaim "c" was not created for this pod'),
        ((GENERATED,), claim(owner_uid="uid-p", terminating=True), 'resourceclaim "c" is being deleted'),
        ((GENERATED,), claim(owner_uid="uid-p"), ""),
        ((ClaimReference("r", None, is_generated=True),), claim(), ""),
    ],
)
def test_for_what_a_pod_waits(references: tuple[ClaimReference, ...], known: ResourceClaim, want: str) -> None:
    """It has a gate, and the sentence is kept."""
    claims = table(known)
    found = claims.put_pod(pod("p", claims=references))
    assert (CLAIM_GATE in found.gates, claims.waiting.get("uid-p", "")) == (bool(want), want)


@pytest.mark.parametrize(
    ("known", "want"),
    [
        (claim(unserved="x"), 'resourceclaim "c": x is not served by this scheduler'),
        (claim(reserved_for_others=True), 'resourceclaim "c" is reserved for something that is no pod'),
        (
            claim("c", DeviceRequest("r", NEURON_DRIVER, 1, ("x" * 1_001,))),
            "its claims have 1001 characters of",
        ),
        (claim(constraints=(MatchAttribute("a"),) * 9), "its claims have 9 constraints, and at most 8 are served"),
        (claim("c", DeviceRequest("r", "none")), 'resourceclaim "c", request "r": device class none does not exist'),
        (claim("c", *(DeviceRequest(str(n), NEURON_DRIVER) for n in range(33))), "its claims have 33 requests, and at"),
    ],
)
def test_why_a_pod_is_refused(known: ResourceClaim, want: str) -> None:
    """The sentence names claim, request and field."""
    assert table(known).put_pod(claiming()).refusal.startswith(want)


def test_a_shared_claim_ties_the_next_pod_to_its_node() -> None:
    """While it is being written it is no other pod's; the pods that may want it are told when that ends."""
    claims = table(claim())
    first, second = (claims.put_pod(claiming(name)) for name in ("p", "q"))
    assert claims.decide(first, ("default/c",)) == ["uid-q"]
    assert claims.resolve(second).gates == (CLAIM_GATE,)
    assert claims.put(claim(version=2, has=[0])).pods == ("uid-p", "uid-q")
    assert claims.resolve(first).neuron == first.neuron  # it keeps what was decided
    assert claims.end_writing("uid-p") == ["uid-q"]
    after = claims.resolve(claiming("q"))
    assert (after.gates, after.neuron, after.constraints.claimed_on) == ((), None, (ON_N,))
    assert after.devices == (key_of(0),)


def test_members_of_a_group_do_not_share_a_claim_that_has_no_devices() -> None:
    """Both would get some; where it has devices already they may."""
    claims = table(claim())
    members = [claiming(name, group=TRAIN) for name in ("p", "q")]
    assert [bool(claims.put_pod(member).refusal) for member in members] == [False, True]
    claims.put(claim(version=2, has=[0]))
    assert [claims.resolve(member).refusal for member in members] == ["", ""]


@pytest.mark.parametrize(("of", "count", "room"), [(NEURON_DRIVER, 1, 3), (NEURON_DRIVER, 2, 1), (OTHER_DRIVER, 2, 4)])
def test_other_drivers_devices_are_no_silicon(of: str, count: int, room: int) -> None:
    """Not even where they are more; pods of a group have room for them, counted from above, and need no block."""
    nics = some_slice(*(device(number, OTHER_DRIVER) for number in range(6)), name="nics", driver=OTHER_DRIVER)
    others = DeviceClass("o", OTHER_DRIVER, (f'device.driver == "{OTHER_DRIVER}"',))
    wanted = claim("c", DeviceRequest("r", of, count))
    claims = table(some_slice(*map(device, range(4))), nics, others, wanted, claim("held", has=[1]))
    row = Cluster(claims=claims).put_node(node("n"))
    assert SURPLUS_OF_CPU(row) == STEPS + STEPS // 4
    assert list(room_of(claims.put_pod(claiming()))(row)) == [room]


def test_the_size_of_a_node_is_not_its_place_in_the_network() -> None:
    """A driver publishes that, too, and a decision looks at each size."""

    def placed(where: str) -> Node:
        attributes: dict[str, AttributeValue] = {
            f"{NEURON_DRIVER}/deviceId": 0,
            f"{NEURON_DRIVER}/networkNodeLayer3": where,
        }
        one = Device(NEURON_DRIVER, where.encode(), "d0", attributes, {})
        return table(some_slice(one)).with_published(node("n"))

    here, there = placed("nn-1"), placed("nn-2")
    assert here.published is not there.published
    assert balance_size_of(here) == balance_size_of(there)


def test_a_change_of_a_claim_that_means_nothing_concerns_no_pod() -> None:
    """Thousands may refer to it: a label, or one user more."""
    claims = table(claim())
    for number in range(300):
        claims.put_pod(claiming(f"p{number}"))
    assert claims.put(claim(version=2, reserved_for={"uid-p0": "p0"})).pods == ()
    assert len(claims.put(claim(version=3, has=[0])).pods) == 300


@pytest.mark.parametrize(("priority", "goes"), [(-1, True), (0, False), (1, False)])
def test_devices_that_are_kept_for_a_pod_get_no_more_users(priority: int, goes: bool) -> None:
    """Else a claim that its pods share would never come free for the pod for which they are evicted."""
    cluster = Cluster(claims=table(some_slice(device(0)), claim(has=[0], reserved_for={"uid-p": "p"})))
    assert cluster.claims is not None
    cluster.put_node(node("n"))
    cluster.put_pod(cluster.claims.put_pod(claiming(on="n", terminating=True)))
    cluster.nominate("n", Nomination(pod("urgent", priority=priority), CoreMask(1), frozenset({"uid-p"})))
    joining = cluster.claims.put_pod(claiming("q"))
    found = select_node(cluster, joining, default_profile(joining.scheduler_name))
    assert isinstance(found, Decision) == goes


def test_the_later_one_of_two_claims_has_a_rival() -> None:
    """Later writes of a claim do not count; another allocation does, also if the states between were not seen."""
    claims = table(claim("a", version=5, has=[0]), claim("b", version=7, has=[0]))
    claims.put(claim("a", version=9, has=[0], finalizers=(PROTECTION,)))
    assert (claims.rival_of("default/a"), claims.rival_of("default/b")) == (None, "default/a")
    claims.put(claim("a", version=20, has=[0, 1]))
    assert (claims.rival_of("default/a"), claims.rival_of("default/b")) == ("default/b", None)


def test_a_whole_node_is_a_rival_of_its_parts() -> None:
    """It has a name of its own."""
    whole = attrs.evolve(device(9), attributes={f"{NEURON_DRIVER}/resourceType": "neuron_node"})
    claims = table(some_slice(device(0), whole), claim("a", version=5, has=[9]), claim("b", version=7, has=[0]))
    on = claims.with_published(node("n"))
    assert (claims.rival_of("default/a", on), claims.rival_of("default/b", on)) == (None, "default/a")


def test_the_pods_of_a_claim_are_resolved_a_few_at_a_time() -> None:
    """A tenant may have any number of them, and everybody waits for a step."""
    cluster, new = Cluster(claims=table()), claim()
    for number in range(40):
        put(cluster, None, claiming(f"p{number}"))
    steps = [put(cluster, None, new), *(resolve_pods(cluster) for _ in range(3))]
    told = [[change.pod.name for change in step if isinstance(change, PodPending)] for step in steps]
    assert told == [[f"p{n}" for n in range(at, min(at + 16, 40))] for at in (0, 16, 32, 48)]  # nobody is left for ever


def test_pods_that_are_gone_leave_nothing() -> None:
    """Each pod of a template has a claim of its own name."""
    claims, empty = table(), table()
    for number in range(3):
        claims.put_pod(claiming(f"p{number}", f"c{number}"))
        claims.put(claim(f"c{number}", has=[number]))
        claims.remove(claim(f"c{number}"))
        claims.remove_pod(f"uid-p{number}")
    assert attrs.asdict(attrs.evolve(claims, allocated_in={}), recurse=False) == attrs.asdict(empty, recurse=False)
