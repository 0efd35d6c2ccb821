"""docs/sizing.md has the counts that each instance type of the catalog serves."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine
from neuron_scheduler.neuron.topology import served

PAGE: Final = (Path(__file__).parents[1] / "docs/sizing.md").read_text()
ROW: Final = re.compile(r"^\| (`[a-z].*?|the same) \| (\d+) \| ([\d, to]+) \| (\d+) \| ([\d, to]+) \|$", re.MULTILINE)

Row = tuple[str, int, tuple[int, ...], int, tuple[int, ...]]
"""An instance type, devices, counts of devices, cores of a device, counts of cores."""


def counts(text: str) -> tuple[int, ...]:
    """Return the counts of a cell such as `1 to 4, 16`."""
    ranges = [part.partition(" to ") for part in text.split(", ")]
    return tuple(count for first, _, last in ranges for count in range(int(first), int(last or first) + 1))


def rows() -> Iterator[Row]:
    """Yield what the page says, one instance type after the other."""
    names: list[str] = []
    for types, devices, of_devices, cores, of_cores in ROW.findall(PAGE):
        names = re.findall(r"`(.*?)`", types) or names
        for name in names:
            yield name, int(devices), counts(of_devices), int(cores), counts(of_cores)


def catalog() -> Iterator[Row]:
    """Yield what the catalog says."""
    for known in INSTANCE_TYPES.values():
        for cores in known.cores_per_device:
            machine = Machine(known.name, known.shape, known.devices, cores)
            yield known.name, known.devices, served(machine, Unit.DEVICE), cores, served(machine, Unit.CORE)


def test_the_counts_are_those_of_the_catalog() -> None:
    """Every type, with each count of cores that its devices can have."""
    assert sorted(rows()) == sorted(catalog())
