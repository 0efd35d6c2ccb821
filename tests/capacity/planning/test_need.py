"""Which machine a node is, whether it takes pods, and which machines the limits allow."""

from random import Random
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, strategies as st

from neuron_scheduler.capacity.planning.need import LimitOwner, MachineNeed
from neuron_scheduler.capacity.requester import check_limits
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.settings.profile_config import CapacityRequests
from tests.capacity.asked import asked
from tests.support.builders import node, pod

WIDE: Final = CapacityRequests(
    max_machines=100, max_devices=1000, max_machines_per_namespace=100, max_devices_per_namespace=1000
)
TRN1: Final = "trn1.32xlarge"


def need_of(devices: int = 16, namespace: str = "default", scheduler: str = "my-scheduler") -> MachineNeed:
    """Return a machine for a pod of a namespace and a profile."""
    return asked(owner=LimitOwner(scheduler, namespace), silicon={NEURON_DEVICE: devices})


def reasons(needs: list[MachineNeed], **limits: Any) -> list[str]:
    """Return a reason for each need, empty for those that may be asked for."""
    return [reason for _, reason in check_limits(needs, [], {"my-scheduler": attrs.evolve(WIDE, **limits)})]


def test_what_limits_say() -> None:
    """A namespace with its share does not keep others from theirs; a smaller machine may pass a larger one."""
    needs = [need_of(), need_of(), need_of(namespace="other")]
    said = "the limit maxMachinesPerNamespace (1) is reached in namespace default"
    assert reasons(needs, max_machines_per_namespace=1) == ["", said, ""]
    needs = [need_of(16), need_of(16), need_of(4)]
    exceeded = "would be exceeded{}: 16 are asked for, and the machine has 16"
    assert reasons(needs, max_devices=20) == ["", f"the limit maxDevices (20) {exceeded.format('')}", ""]
    said = f"the limit maxDevicesPerNamespace (20) {exceeded.format(' in namespace default')}"
    assert reasons(needs, max_devices_per_namespace=20) == ["", said, ""]
    needs = [need_of(), need_of(scheduler="batch"), need_of()]
    limits = {"my-scheduler": attrs.evolve(WIDE, max_machines=1), "batch": attrs.evolve(WIDE, max_machines=1)}
    answers = check_limits(needs, [], limits)
    assert [reason for _, reason in answers] == ["", "", "the limit maxMachines (1) is reached"]


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
    out = some[: dice.randint(0, 4)]
    answers = check_limits(some[len(out) :], out, {"my-scheduler": limits})

    def passed(asked: list[MachineNeed], namespace: str) -> bool:
        for where, machines, devices in (
            ("", limits.max_machines, limits.max_devices),
            (namespace, limits.max_machines_per_namespace, limits.max_devices_per_namespace),
        ):
            counted = [each.devices for each in asked if where in ("", each.owner.namespace)]
            if len(counted) > machines or sum(counted) > devices:
                return True
        return False

    allowed = [need for need, reason in answers if not reason]
    assert not any(passed([*out, *allowed], each.owner.namespace) for each in allowed)
    assert all(passed([*out, *allowed, need], need.owner.namespace) for need, reason in answers if reason)


@pytest.mark.parametrize(
    ("instance_type", "silicon", "devices"),
    [
        (TRN1, {NEURON_DEVICE: 16, NEURON_CORE: 32}, 16),
        (TRN1, {NEURON_DEVICE_ALIAS: 16}, 16),
        (f"ml.{TRN1}", {NEURON_CORE: 32}, 16),
        ("new.48xlarge", {NEURON_CORE: 32}, 32),
    ],
)
def test_devices(instance_type: str, silicon: dict[str, int], devices: int) -> None:
    """They are counted by their own name, else by the type; of an unknown type each core counts as one."""
    assert asked(instance_type=instance_type, silicon=silicon).devices == devices


@pytest.mark.parametrize(
    ("labels", "taints", "want"),
    [
        ({}, (), True),
        ({}, (Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE),), True),
        ({}, (Taint("team", Effect.NO_SCHEDULE),), False),
        ({"team": "b"}, (), False),
        ({"gen": None}, (), False),
        ({ZONE_LABEL: "z2"}, (), False),
        ({INSTANCE_TYPE_LABEL: "inf2.48xlarge"}, (), False),
    ],
)
def test_which_nodes_meet_it(labels: dict[str, str | None], taints: tuple[Taint, ...], *, want: bool) -> None:
    """Type, zone, taints that stay and the labels that the pattern requires decide."""
    required = (NodeSelectorTerm((Requirement("gen", Operator.EXISTS),)),)
    need = asked(zones=("z0", "z1"), pattern=pod("p", node_selector={"team": "a"}, required_terms=required))
    has = {INSTANCE_TYPE_LABEL: TRN1, "team": "a", "gen": "2", ZONE_LABEL: "z1"} | labels
    there = node("n", labels={key: value for key, value in has.items() if value}, taints=taints)
    assert need.is_met_by(there) is want


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param(node("n", TRN1), True, id="ready"),
        pytest.param(node("n", TRN1, devices=0), False, id="no devices yet"),
        pytest.param(node("n", TRN1, unschedulable=True), False, id="cordoned"),
        pytest.param(node("n", TRN1, refusal="unreadable"), False, id="unreadable"),
        pytest.param(node("n", TRN1, taints=(Taint("node.kubernetes.io/not-ready", Effect.NO_SCHEDULE),)), False),
        pytest.param(node("n", TRN1, taints=(Taint("karpenter.sh/unregistered", Effect.NO_EXECUTE),)), False),
        pytest.param(node("n", TRN1, taints=(Taint("team", Effect.NO_SCHEDULE),)), True, id="a taint that stays"),
    ],
)
def test_when_a_node_takes_pods(changed: Node, *, want: bool) -> None:
    """Its silicon is there, and no taint that passes."""
    assert asked().is_ready(changed) is want
