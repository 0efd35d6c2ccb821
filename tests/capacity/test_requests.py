"""The table of requests: names, states, which node serves, which pods wait and for how long."""

from typing import Any

import pytest

from neuron_scheduler.capacity.limits import Limited, Owner
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.requests import Request, Requests, State
from neuron_scheduler.capacity.waits import FIRST_REFUSAL, LONGEST
from neuron_scheduler.model.node import ZONE_LABEL
from neuron_scheduler.model.resources import NEURON_DEVICE
from tests.support.builders import node, pod

TRN1 = "trn1.32xlarge"


def need(*names: str, zones: tuple[str, ...] = (), **pattern: Any) -> MachineNeed:
    """Return a trn1.32xlarge for pods of these names."""
    pods = tuple(pod(name, devices=4, scheduler_name="my-scheduler", **pattern) for name in names)
    return MachineNeed(instance_types=(TRN1,), silicon={NEURON_DEVICE: 16}, host={}, zones=zones, pods=pods)


def uids(*names: str) -> frozenset[str]:
    """Return the uids of pods."""
    return frozenset(pod(name).uid for name in names)


@pytest.fixture
def table() -> Requests:
    """Return an empty table."""
    return Requests()


def counts(table: Requests, now: float = 0.0) -> dict[str, int]:
    """Return the states that any machine is in."""
    return {state: count for state, count in table.counts(now).items() if count}


def test_a_name_is_the_same_for_the_same_need(table: Requests) -> None:
    """It comes from the first pod; a number that is taken, here or on the server, is not used again."""
    uid = pod("a").uid
    assert table.ask(need("a", "b"), 0.0).name == f"capacity-{uid}-0"
    assert table.ask(need("a"), 0.0).name == f"capacity-{uid}-1"
    assert table.ask(need("a"), 0.0, [f"capacity-{uid}-2"]).name == f"capacity-{uid}-3"
    assert Requests().ask(need("a", "c"), 9.0).name == f"capacity-{uid}-0"


def test_a_machine_from_the_wish_to_the_end(table: Requests) -> None:
    """Open until a node joins, arriving until its pods have left; the last of them ends it."""
    request = table.ask(need("a", "b"), 10.0)
    assert (request.state, request.pods, counts(table)) == (State.OPEN, uids("a", "b"), {"open": 1})
    assert table.joined(node("n", TRN1), 20.0) is request
    assert (request.state, request.node_name, table.of_node("n")) == (State.ARRIVING, "n", request)
    assert table.joined(node("m", TRN1), 20.0) is None, "one node serves one request"
    assert request.name in table.to_plan_with
    request.usable_since = 20.0
    assert request.name not in table.to_plan_with, "the node itself is planned with now"
    assert not any(table.may_ask(uid, 20.0) for uid in uids("a", "b"))
    assert table.left(pod("a").uid) == []
    assert table.left(pod("b").uid) == [request]
    assert table.end(request.name) is request
    assert (len(table), counts(table)) == (0, {})


def test_a_node_goes_to_the_oldest_request_that_it_serves(table: Requests) -> None:
    """Type and zone count."""
    other, near, far = table.ask(need("a", zones=("x",)), 0), table.ask(need("b"), 1), table.ask(need("c"), 2)
    assert table.joined(node("n", "inf2.48xlarge"), 20.0) is None
    assert [table.joined(node(name, TRN1, labels={ZONE_LABEL: "y"}), 20.0) for name in "nm"] == [near, far]
    assert table.joined(node("o", TRN1, labels={ZONE_LABEL: "x"}), 20.0) is other


def test_waits_after_refusals_get_longer(table: Requests) -> None:
    """Each refusal in a row doubles the wait of the same pods, up to four hours; other pods may be asked for."""
    now, uid = 0.0, pod("a").uid
    for level in range(12):
        request = table.ask(need("a", "b"), now)
        table.end(request.name)
        table.waits.refused(request.pods, "quota", now)
        wait = table.waits.of(uid, now)
        assert wait is not None
        assert wait.until - now == min(FIRST_REFUSAL * 2**level, LONGEST)
        assert wait.reason == "the API server refused it: quota"
        assert not table.may_ask(uid, wait.until - 0.1)
        assert table.may_ask(pod("c").uid, now)
        assert counts(table, now) == {"refused": 1}
        now = wait.until
        assert table.may_ask(uid, now)
        assert table.waits.of(uid, now) is None
        assert counts(table, now) == {}


def test_a_pod_that_left_is_forgotten(table: Requests) -> None:
    """Its wait is over, too: a pod of that uid never comes back, and memory does not grow."""
    request = table.ask(need("a"), 0.0)
    table.end(request.name)
    table.waits.gave_up(request.pods, "too late", 0.0, 100.0)
    assert table.waits.of(pod("a").uid, 99.0) is not None
    assert counts(table) == {}, "a machine that was given up is none that was refused"
    table.left(pod("a").uid)
    assert table.waits.of(pod("a").uid, 0.0) is None


def test_what_is_overdue(table: Requests) -> None:
    """Each profile has its time; a request of a profile that asks for nothing any more is overdue at once."""
    first = table.ask(need("a"), 0.0)
    adopted = table.adopt("capacity-x-0", Owner("gone", "ns"), need("x"), 5.0)
    assert table.overdue(9.0, {"my-scheduler": 10.0}) == [adopted]
    assert table.overdue(10.0, {"my-scheduler": 10.0, "gone": 10.0}) == [first]


def test_what_a_plan_says(table: Requests) -> None:
    """An adopted request knows its pods after the first plan; needs that are not asked for are remembered by pod."""
    request = table.adopt("capacity-x-0", Owner("my-scheduler", "ns"), need("x"), 0.0)
    assert not request.pods
    table.planned({request.name: [pod("a").uid], "ended": ["u"]})
    assert table.request_for(pod("a").uid) is request
    table.not_asked((Limited(need("b"), "the limit"),), (need("c"),))
    assert (table.limit_of(pod("b").uid), table.limit_of(pod("c").uid)) == ("the limit", "")
    assert table.is_postponed(pod("c").uid)
    assert counts(table) == {"open": 1, "limited": 1, "waiting": 1}
    assert [(owner, need.pods[0].name) for owner, need in table.outstanding] == [(Owner("my-scheduler", "ns"), "x")]


def test_a_pod_that_another_machine_serves_now(table: Requests) -> None:
    """A pod has one request: the machine that others have taken is for it no more, and ends without its last pod."""
    taken, coming = table.ask(need("a", "b"), 0.0), table.ask(need("c"), 0.0)
    taken.usable_since = 1.0
    assert table.planned({coming.name: [pod("c").uid, pod("a").uid]}) == []
    assert (taken.pods, coming.pods) == (uids("b"), uids("a", "c"))
    assert table.planned({coming.name: uids("a", "b", "c")}) == [taken]
    assert (taken.pods, coming.pods) == (frozenset(), uids("a", "b", "c"))


def test_a_pod_of_two_requests(table: Requests) -> None:
    """Both have lost their last pod when it leaves."""
    both = [table.ask(need("a"), 0.0), table.ask(need("a"), 0.0)]
    assert table.left(pod("a").uid) == both


def test_requests_are_found_by_name(table: Requests) -> None:
    """What has ended is not there, and ends once."""
    request: Request = table.ask(need("a"), 0.0)
    assert request.name in table
    assert table.get(request.name) is request
    assert table.all() == (request,)
    assert table.end(request.name) is request
    assert table.end(request.name) is None
    assert table.get(request.name) is None
