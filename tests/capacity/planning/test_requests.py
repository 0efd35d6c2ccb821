"""Which machines may be asked for, and the table of requests: names, states, which node serves, which pods wait."""

from random import Random
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.capacity.planning.requests import (
    FIRST_REFUSAL,
    LONGEST,
    MachineNeed,
    Owner,
    Requests,
    takes_pods,
)
from neuron_scheduler.capacity.requester import admitted
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.settings.profile_config import CapacityRequests
from tests.support import builders
from tests.support.builders import node, pod

WIDE: Final = CapacityRequests(
    max_machines=100, max_devices=1000, max_machines_per_namespace=100, max_devices_per_namespace=1000
)


def need_of(devices: int = 16, namespace: str = "default", scheduler: str = "my-scheduler") -> MachineNeed:
    """Return a machine for a pod of a namespace and a profile."""
    pod = builders.pod(f"{namespace}-{devices}", namespace=namespace, scheduler_name=scheduler)
    return MachineNeed(instance_types=("trn1.32xlarge",), silicon={NEURON_DEVICE: devices}, host={}, pods=(pod,))


def reasons(needs: list[MachineNeed], outstanding: list[tuple[Owner, MachineNeed]], **limits: Any) -> list[str]:
    """Return a reason for each need, empty for those that may be asked for."""
    allowed, not_allowed = admitted(needs, outstanding, lambda _: attrs.evolve(WIDE, **limits))
    assert len(allowed) + len(not_allowed) == len(needs)
    said = {id(limited.need): limited.reason for limited in not_allowed}
    return [said.get(id(need), "") for need in needs]


def test_machines_of_a_namespace() -> None:
    """A namespace that has its share does not keep the others from theirs."""
    needs = [need_of(), need_of(), need_of(namespace="other")]
    said = "the limit maxMachinesPerNamespace (1) is reached in namespace default"
    assert reasons(needs, [], max_machines_per_namespace=1) == ["", said, ""]


def test_devices_in_all_and_of_a_namespace() -> None:
    """A machine that is too large is passed over, and a smaller one is asked for."""
    exceeded = "would be exceeded{}: 16 are asked for, and the machine has 16"
    in_all = [need_of(16), need_of(16), need_of(4)]
    assert reasons(in_all, [], max_devices=20) == ["", f"the limit maxDevices (20) {exceeded.format('')}", ""]
    said = f"the limit maxDevicesPerNamespace (20) {exceeded.format(' in namespace default')}"
    assert reasons(in_all, [], max_devices_per_namespace=20) == ["", said, ""]


def test_each_profile_has_limits_of_its_own() -> None:
    """Requests of another profile do not count, and a profile that asks for nothing gets nothing."""
    needs = [need_of(), need_of(scheduler="batch"), need_of(scheduler="off")]
    limits = {"my-scheduler": attrs.evolve(WIDE, max_machines=1), "batch": attrs.evolve(WIDE, max_machines=1)}
    allowed, not_allowed = admitted(needs, [], limits.get)
    assert allowed == tuple(needs[:2])
    assert [limited.reason for limited in not_allowed] == ["its profile asks for no machines"]


@given(st.randoms(use_true_random=False))
def test_no_limit_is_ever_passed(dice: Random) -> None:
    """Whatever is out and whatever is needed: what may be asked for fits, and what may not would not."""
    limits = CapacityRequests(
        max_machines=dice.randint(0, 5),
        max_devices=dice.randint(0, 64),
        max_machines_per_namespace=dice.randint(0, 5),
        max_devices_per_namespace=dice.randint(0, 64),
    )
    some = [need_of(dice.choice((1, 4, 16)), dice.choice("ab")) for _ in range(dice.randint(0, 12))]
    out = [(each.owner, each) for each in some[: dice.randint(0, 4)]]
    needs = some[len(out) :]
    allowed, not_allowed = admitted(needs, out, lambda _: limits)

    def passed(asked: list[MachineNeed], namespace: str) -> bool:
        for where, machines, devices in (
            ("", limits.max_machines, limits.max_devices),
            (namespace, limits.max_machines_per_namespace, limits.max_devices_per_namespace),
        ):
            counted = [each.devices for each in asked if where in ("", each.owner.namespace)]
            if len(counted) > machines or sum(counted) > devices:
                return True
        return False

    asked = [each for _, each in out] + list(allowed)
    assert not any(passed(asked, each.owner.namespace) for each in allowed)
    assert all(passed([*asked, limited.need], limited.need.owner.namespace) for limited in not_allowed)


@pytest.mark.parametrize(
    ("instance_type", "silicon", "devices"),
    [
        ("trn1.32xlarge", {NEURON_DEVICE: 16, NEURON_CORE: 32}, 16),
        ("trn1.32xlarge", {NEURON_DEVICE_ALIAS: 16}, 16),
        ("ml.trn1.32xlarge", {NEURON_CORE: 32}, 16),
        ("new.48xlarge", {NEURON_CORE: 32}, 32),
    ],
)
def test_devices(instance_type: str, silicon: dict[str, int], devices: int) -> None:
    """They are counted by their own name, else by the type; of an unknown type each core counts as one."""
    assert attrs.evolve(need_of(), instance_types=(instance_type,), silicon=silicon).devices == devices


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        ({"team": "a", "gen": "2", ZONE_LABEL: "z1"}, True),
        ({"team": "b", "gen": "2", ZONE_LABEL: "z1"}, False),
        ({"team": "a", ZONE_LABEL: "z1"}, False),
        ({"team": "a", "gen": "2", ZONE_LABEL: "z2"}, False),
        ({"team": "a", "gen": "2", ZONE_LABEL: "z1", INSTANCE_TYPE_LABEL: "inf2.48xlarge"}, False),
    ],
)
def test_which_nodes_meet_it(labels: dict[str, str], *, want: bool) -> None:
    """Type, zone and the labels that the pattern requires decide; they may come later than the node."""
    required = (NodeSelectorTerm((Requirement("gen", Operator.EXISTS),)),)
    pattern = builders.pod("p", node_selector={"team": "a"}, required_terms=required)
    asked = attrs.evolve(need_of(), zones=("z0", "z1"), pattern=pattern)
    there = builders.node("n", labels={INSTANCE_TYPE_LABEL: "trn1.32xlarge", **labels})
    assert asked.is_met_by(there) is want


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


def test_waits_after_refusals_get_longer(table: Requests) -> None:
    """Each refusal in a row doubles the wait of the same pods, up to four hours; other pods may be asked for."""
    now, uid = 0.0, pod("a").uid
    for level in range(12):
        request = table.ask(need("a", "b"), now)
        table.end(request.name)
        table.wait(request.pods, "quota", now, refused=True)
        wait = table.wait_of(uid, now)
        assert wait is not None
        assert wait.until - now == min(FIRST_REFUSAL * 2**level, LONGEST)
        assert wait.reason == "quota"
        assert not table.may_ask(uid, wait.until - 0.1)
        assert table.may_ask(pod("c").uid, now)
        assert counts(table, now) == {"refused": 1}
        now = wait.until
        assert table.may_ask(uid, now)
        assert table.wait_of(uid, now) is None
        assert counts(table, now) == {}


def test_a_pod_that_left_is_forgotten(table: Requests) -> None:
    """Its wait is over, too: a pod of that uid never comes back, and memory does not grow."""
    request = table.ask(need("a"), 0.0)
    table.end(request.name)
    table.wait(request.pods, "too late", 0.0, first=100.0)
    assert table.wait_of(pod("a").uid, 99.0) is not None
    assert counts(table) == {}, "a machine that was given up is none that was refused"
    table.left(pod("a").uid)
    assert table.wait_of(pod("a").uid, 0.0) is None


def test_a_pod_that_another_machine_serves_now(table: Requests) -> None:
    """A pod has one request: the machine that others have taken is for it no more, and ends without its last pod."""
    taken, coming = table.ask(need("a", "b"), 0.0), table.ask(need("c"), 0.0)
    taken.usable_since = 1.0
    assert table.planned({coming.name: [pod("c").uid, pod("a").uid]}) == []
    assert (taken.pods, coming.pods) == (uids("b"), uids("a", "c"))
    assert table.planned({coming.name: uids("a", "b", "c")}) == [taken]
    assert (taken.pods, coming.pods) == (frozenset(), uids("a", "b", "c"))


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param(node("n", TRN1), True, id="ready"),
        pytest.param(node("n", TRN1, devices=0), False, id="no devices yet"),
        pytest.param(node("n", TRN1, unschedulable=True), False, id="cordoned"),
        pytest.param(node("n", TRN1, refusal="unreadable"), False, id="unreadable"),
        pytest.param(
            node("n", TRN1, taints=(Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE),)), False, id="not ready"
        ),
        pytest.param(
            node("n", TRN1, taints=(Taint("karpenter.sh/unregistered", Effect.NO_EXECUTE),)), False, id="unregistered"
        ),
        pytest.param(node("n", TRN1, taints=(Taint("team", Effect.NO_SCHEDULE),)), True, id="a taint that stays"),
    ],
)
def test_when_a_node_takes_pods(changed: Node, *, want: bool) -> None:
    """Its silicon is there, and no taint that passes."""
    assert takes_pods(changed, need("a")) is want
