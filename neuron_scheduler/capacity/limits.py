"""
Which needs may be asked for now, and why the others may not: machines and devices, in all and for each namespace.

A request counts for the profile and for the namespace of its most urgent pod, the one that it is asked for. It counts
until its machine serves or is given up, and what asks for it is deleted. Does not split a need: a machine is asked
for as a whole or not at all.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import attrs

from neuron_scheduler.capacity.machine_need import MachineNeed


@attrs.frozen(kw_only=True)
class Limits:
    """How many machines, and devices of them, the requests of a profile may be for at the same time."""

    machines: int
    devices: int
    machines_per_namespace: int
    devices_per_namespace: int


@attrs.frozen
class Limited:
    """
    A need that may not be asked for now.

    Attributes:
        reason: which limit it would exceed, for people: `the limit maxMachines (2) is reached`.
    """

    need: MachineNeed
    reason: str


@attrs.frozen(kw_only=True)
class Admission:
    """Which needs may be asked for now, and which may not; each in the order of the needs."""

    allowed: tuple[MachineNeed, ...] = ()
    limited: tuple[Limited, ...] = ()


@attrs.frozen
class Owner:
    """Whose limits a need counts for; `namespace` is empty for the whole profile."""

    scheduler_name: str
    namespace: str = ""


def admitted(
    needs: Sequence[MachineNeed],
    outstanding: Iterable[tuple[Owner, MachineNeed]],
    limits_of: Callable[[str], Limits | None],
) -> Admission:
    """
    Admit needs in their order as long as no limit is exceeded; a smaller one may pass where a larger one may not.

    Args:
        needs: new ones, the most urgent first.
        outstanding: the requests that are out, those whose machine does not serve yet, and those whose objects are not
            deleted yet, with whom they count for.
        limits_of: the limits of a profile by its scheduler name; None if it asks for no machines.
    """
    machines, devices = Counter[Owner](), Counter[Owner]()

    def count(owner: Owner, need: MachineNeed) -> None:
        for whose in (owner, Owner(owner.scheduler_name)):
            machines[whose] += 1
            devices[whose] += need.devices

    for owner, need in outstanding:
        count(owner, need)
    allowed: list[MachineNeed] = []
    limited: list[Limited] = []
    for need in needs:
        owner = owner_of(need)
        limits = limits_of(owner.scheduler_name)
        reason = "its profile asks for no machines" if limits is None else _exceeded(need, limits, machines, devices)
        if reason:
            limited.append(Limited(need, reason))
        else:
            count(owner, need)
            allowed.append(need)
    return Admission(allowed=tuple(allowed), limited=tuple(limited))


def owner_of(need: MachineNeed) -> Owner:
    """Return whose limits a need counts for: those of the profile and the namespace of its most urgent pod."""
    pod = need.pods[0]
    return Owner(pod.scheduler_name, pod.namespace)


def _exceeded(need: MachineNeed, limits: Limits, machines: Counter[Owner], devices: Counter[Owner]) -> str:
    """Return which limit a further machine would exceed, in a clause; empty if it exceeds none."""
    own = owner_of(need)
    profile = Owner(own.scheduler_name)
    for setting, most, whose, where in (
        ("maxMachines", limits.machines, profile, ""),
        ("maxMachinesPerNamespace", limits.machines_per_namespace, own, f" in namespace {own.namespace}"),
    ):
        if machines[whose] >= most:
            return f"the limit {setting} ({most}) is reached{where}"
    for setting, most, whose, where in (
        ("maxDevices", limits.devices, profile, ""),
        ("maxDevicesPerNamespace", limits.devices_per_namespace, own, f" in namespace {own.namespace}"),
    ):
        if devices[whose] + need.devices > most:
            used = f": {devices[whose]} are asked for, and the machine has {need.devices}"
            return f"the limit {setting} ({most}) would be exceeded{where}{used}"
    return ""
