"""What AWS's extension would remember of a node."""

import pytest

from neuron_scheduler.model.annotations import NEURON_CORE_USAGE_MAP, NEURON_DEV_USAGE_MAP
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.annotations import usage_maps
from neuron_scheduler.neuron.catalog import Machine, Shape
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask

INF1 = Machine("inf1.6xlarge", Shape.LINE, devices=4, cores_per_device=4)


def csv(text: str) -> str:
    """Return `true` for each x and `false` for each dot, with commas."""
    return ",".join("true" if character == "x" else "false" for character in text)


@pytest.mark.parametrize(
    ("held", "devices", "cores"),
    [
        (0, "....", "." * 16),
        (0b1_1111_1111, "xxx.", "x" * 9 + "." * 7),  # the log in AWS's documentation
        (0xFFFF, "xxxx", "x" * 16),
        (0xF0, ".x..", "....xxxx........"),
        (1 << 15, "...x", "." * 15 + "x"),
    ],
)
def test_both_maps_show_the_same_cores(held: int, devices: str, cores: str) -> None:
    """A device is used if any of its cores is."""
    assert usage_maps(INF1, CoreMask(held)) == {NEURON_DEV_USAGE_MAP: csv(devices), NEURON_CORE_USAGE_MAP: csv(cores)}


def test_one_device() -> None:
    """The maps of a node of one device, as they were observed on an inf2.8xlarge."""
    assert usage_maps(Machine("inf2.8xlarge", Shape.SINGLE, 1, 2), NO_CORES) == {
        NEURON_DEV_USAGE_MAP: "false",
        NEURON_CORE_USAGE_MAP: "false,false",
    }


def test_a_unit_that_is_not_served_has_no_map() -> None:
    """Without a count of cores, nothing can be said about cores; likewise for devices."""
    only = {unit: usage_maps(Machine("", Shape.FLAT, 2, 1, frozenset({unit})), CoreMask(0b10)) for unit in (*Unit,)}
    assert only == {
        Unit.DEVICE: {NEURON_DEV_USAGE_MAP: "false,true"},
        Unit.CORE: {NEURON_CORE_USAGE_MAP: "false,true"},
    }
