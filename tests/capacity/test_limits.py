"""Limits: which machines may be asked for now, and the sentence for those that may not."""

from typing import Any, Final

import attrs
import pytest

from neuron_scheduler.capacity.limits import Limits, Owner, admitted
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.model.resources import NEURON_DEVICE
from tests.support import builders

WIDE: Final = Limits(machines=100, devices=1000, machines_per_namespace=100, devices_per_namespace=1000)


def need(devices: int = 16, namespace: str = "default", scheduler: str = "my-scheduler") -> MachineNeed:
    """Return a machine for a pod of a namespace and a profile."""
    pod = builders.pod(f"{namespace}-{devices}", namespace=namespace, scheduler_name=scheduler)
    return MachineNeed(instance_types=("trn1.32xlarge",), silicon={NEURON_DEVICE: devices}, host={}, pods=(pod,))


def reasons(needs: list[MachineNeed], outstanding: list[tuple[Owner, MachineNeed]], **limits: Any) -> list[str]:
    """Return a reason for each need, empty for those that may be asked for."""
    admission = admitted(needs, outstanding, lambda _: attrs.evolve(WIDE, **limits))
    assert len(admission.allowed) + len(admission.limited) == len(needs)
    said = {id(limited.need): limited.reason for limited in admission.limited}
    return [said.get(id(need), "") for need in needs]


def test_machines_in_all() -> None:
    """The most urgent get what is left; requests that are out count, whosever they are."""
    out = [(Owner("my-scheduler", "other"), need())]
    assert reasons([need(), need()], out, machines=2) == ["", "the limit maxMachines (2) is reached"]


def test_machines_of_a_namespace() -> None:
    """A namespace that has its share does not keep the others from theirs."""
    needs = [need(), need(), need(namespace="other")]
    said = "the limit maxMachinesPerNamespace (1) is reached in namespace default"
    assert reasons(needs, [], machines_per_namespace=1) == ["", said, ""]


def test_devices_in_all_and_of_a_namespace() -> None:
    """A machine that is too large is passed over, and a smaller one is asked for."""
    exceeded = "would be exceeded{}: 16 are asked for, and the machine has 16"
    in_all = [need(16), need(16), need(4)]
    assert reasons(in_all, [], devices=20) == ["", f"the limit maxDevices (20) {exceeded.format('')}", ""]
    said = f"the limit maxDevicesPerNamespace (20) {exceeded.format(' in namespace default')}"
    assert reasons(in_all, [], devices_per_namespace=20) == ["", said, ""]


def test_each_profile_has_limits_of_its_own() -> None:
    """Requests of another profile do not count, and a profile that asks for nothing gets nothing."""
    needs = [need(), need(scheduler="batch"), need(scheduler="off")]
    limits = {"my-scheduler": attrs.evolve(WIDE, machines=1), "batch": attrs.evolve(WIDE, machines=1)}
    admission = admitted(needs, [], limits.get)
    assert admission.allowed == tuple(needs[:2])
    assert [limited.reason for limited in admission.limited] == ["its profile asks for no machines"]


@pytest.mark.parametrize("limit", ["machines", "devices", "machines_per_namespace", "devices_per_namespace"])
def test_nothing_is_allowed_by_a_limit_of_zero(limit: str) -> None:
    """A limit of 0 is a limit."""
    assert all(reasons([need(), need(4)], [], **{limit: 0}))
