"""MachineNeed: how large it is, and which nodes meet it."""

import pytest

from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS
from tests.support import builders


def need(instance_type: str, silicon: dict[str, int], zones: tuple[str, ...] = ()) -> MachineNeed:
    """Return a need for one pod."""
    return MachineNeed(
        instance_types=(instance_type,), silicon=silicon, host={}, zones=zones, pods=(builders.pod("p"),)
    )


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
    assert need(instance_type, silicon).devices == devices


def test_the_pattern_is_the_most_urgent_pod_where_nothing_else_is_said() -> None:
    """A request read back from the API server has one pod."""
    asked = need("trn1.32xlarge", {NEURON_DEVICE: 16})
    assert asked.pattern is asked.pods[0]


def test_which_nodes_meet_it() -> None:
    """Type and zone decide, both by the labels' values."""
    trn1 = builders.node("a", labels={INSTANCE_TYPE_LABEL: "trn1.32xlarge", ZONE_LABEL: "z1"})
    assert need("trn1.32xlarge", {NEURON_DEVICE: 16}).is_met_by(trn1)
    assert need("trn1.32xlarge", {NEURON_DEVICE: 16}, ("z0", "z1")).is_met_by(trn1)
    assert not need("trn1.32xlarge", {NEURON_DEVICE: 16}, ("z0",)).is_met_by(trn1)
    assert not need("inf2.48xlarge", {NEURON_DEVICE: 12}).is_met_by(trn1)
