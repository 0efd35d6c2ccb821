"""
What AWS's scheduler extension would remember of a node: its usage maps, as the annotations that it keeps on nodes.

A device counts as used as soon as one of its cores is used, and a device that is used has all its cores used: the log
in AWS's documentation shows both maps after a pod of nine cores. Does not read maps: they become stale.
"""

from collections.abc import Mapping

from neuron_scheduler.model.annotations import NEURON_CORE_USAGE_MAP, NEURON_DEV_USAGE_MAP
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import core_mask

_KEYS = {Unit.DEVICE: NEURON_DEV_USAGE_MAP, Unit.CORE: NEURON_CORE_USAGE_MAP}


def usage_maps(machine: Machine, held: CoreMask) -> Mapping[str, str]:
    """Return the annotations of a node whose pods hold these cores; for the units that the machine serves."""
    return {key: _written(machine, held, unit) for unit, key in _KEYS.items() if unit in machine.units}


def _written(machine: Machine, held: CoreMask, unit: Unit) -> str:
    masks = (core_mask(machine, ids=(number,), unit=unit) for number in range(machine.size(unit)))
    return ",".join("true" if held & mask else "false" for mask in masks)
