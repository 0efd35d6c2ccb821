"""
What hard cases are put together from.

Refuses to choose anything: each function returns what it is told.
"""

from collections.abc import Iterable
from typing import Final

import attrs

from tests.simulation.deeds import CreateNamespace, CreatePod
from tests.simulation.pod_plans import PodPlan
from tests.simulation.scenario import Deed, Fault, Scenario

HOOKED: Final = ("hooked-a", "hooked-b")
"""Namespaces for whose pods a webhook fails, or which are too large: no other scheduler could bind them either."""
TOO_MANY: Final = 64
"""Devices that no node has."""
_BEGINNING: Final = 0.1
"""Seconds in which namespaces and budgets are created."""


def more(scenario: Scenario, deeds: Iterable[Deed] = (), faults: Iterable[Fault] = ()) -> Scenario:
    """Return a scenario with some more deeds and faults."""
    return attrs.evolve(scenario, deeds=(*scenario.deeds, *deeds), faults=(*scenario.faults, *faults))


def alone(scenario: Scenario, *, until: float, **fields: object) -> Scenario:
    """Return a scenario with other fields, no faults, and no deeds until a time, so that there is room for a case."""
    other = attrs.evolve(scenario, faults=(), **fields)  # type: ignore[arg-type]  # fields
    kept = [deed for deed in scenario.deeds if deed.at < _BEGINNING or until < deed.at < other.quiet_at]
    return attrs.evolve(other, deeds=tuple(kept))


def always(scenario: Scenario, kind: str, target: str, seconds: float = 0.0, chance: float = 1.0) -> Fault:
    """Return a fault that strikes until the quiet."""
    return Fault(kind=kind, at=0.0, until=scenario.quiet_at, target=target, chance=chance, seconds=seconds)


def once(kind: str, at: float, number: int, seconds: float = 0.0) -> Fault:
    """Return a fault of a replica's process."""
    return Fault(kind=kind, at=at, until=at, target=f"scheduler-{number}", seconds=seconds)


def scheduler_1_leads() -> Fault:
    """Return a fault after which that replica leads, whichever came first: the other one is asked to end."""
    return once("terminated", 3.0, 0)


def small(name: str, at: float, **fields: object) -> CreatePod:
    """Return the creation of a pod that fits on any node."""
    return CreatePod(at=round(at, 3), pod=PodPlan(name=name, cpu=0, tolerant=True, **fields))  # type: ignore[arg-type]  # fields


def pods(name: str, count: int, at: float, **fields: object) -> list[CreatePod]:
    """Return the creation of equal pods at one moment; each asks for a device if nothing else is given."""
    asked = {"devices": (1,), "cpu": 0, **fields}
    return [CreatePod(at=round(at, 3), pod=PodPlan(name=f"{name}{n}", **asked)) for n in range(count)]  # type: ignore[arg-type]  # fields


def hooked(scenario: Scenario, kind: str, target: str, deeds: Iterable[Deed]) -> Scenario:
    """Return a scenario in which something fails for ever for the pods of `HOOKED`."""
    namespaces = [CreateNamespace(at=0.0, name=name) for name in HOOKED]
    faults = [Fault(kind=kind, at=0.0, until=scenario.ends_at, target=target, detail=namespace) for namespace in HOOKED]
    return more(scenario, [*namespaces, *deeds], faults)
