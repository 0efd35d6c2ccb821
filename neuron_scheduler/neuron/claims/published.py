"""
The devices that drivers publish for one node, as bits: bit i is the Neuron device with id i, others come behind them.

Equal nodes share one `DeviceSet`, and with it what selectors and constraints say of its devices.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final
from weakref import WeakValueDictionary

import attrs

from neuron_scheduler.model.devices import NEURON_DRIVER, NEVER, AttributeValue, Device, DeviceKey, WantedDevices
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.selectors import Toleration, tolerates_all
from neuron_scheduler.model.wording import list_of
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES, Machine, Shape, shape_of
from neuron_scheduler.neuron.claims.cel import CelError, compile_selector
from neuron_scheduler.neuron.claims.choice import MOST_OF_A_CLAIM, Constraints, DeviceDemand, bits_of, choose
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.packing import MOST_REMEMBERED
from neuron_scheduler.neuron.topology import Placement

_ID: Final = f"{NEURON_DRIVER}/deviceId"
_TYPE: Final = f"{NEURON_DRIVER}/resourceType"
_INSTANCE_TYPE: Final = f"{NEURON_DRIVER}/instanceType"
WHOLE: Final = "neuron_node"
FAILS: Final = "CEL runtime error in a selector of request {}: {}"
TAINTED: Final = "node(s) had devices with untolerated taint(s) {}"
NO_POOL: Final = "its pool is incomplete"
"""Stands for a device's field that is not served."""
INCOMPLETE: Final = "node(s) had an incomplete pool of devices, and a claim asks for all"
TOO_MANY: Final = f"node(s) had more devices for a claim than the {MOST_OF_A_CLAIM} that one may have"
_MOST_ANSWERS: Final = 64
"""Of each kind that a set remembers: claims may name any number of selectors and attributes."""


@attrs.define(eq=False)
class DeviceSet:
    """
    The devices of nodes that are alike.

    Attributes:
        devices: by bit; None for a Neuron device that is only published as a part of all.
        holds: by bit, the bits that are held with it.
        given: the devices that requests may get; the others have fields that are not served.
        is_complete: each pool is.
        shape: what the Neuron devices make up, by counts; without any, all devices.
        machine: the same, for claims.
    """

    devices: tuple[Device | None, ...]
    holds: tuple[int, ...]
    given: int
    is_complete: bool
    shape: Machine
    machine: Machine = attrs.field(init=False, repr=False)
    _bits: Mapping[tuple[str, str, str], int] = attrs.field(init=False)
    _matching: dict[tuple[str, ...], int | CelError] = attrs.field(factory=dict, init=False)
    _alike: dict[str, tuple[int, ...]] = attrs.field(factory=dict, init=False)

    @machine.default
    def _machine_for_claims(self) -> Machine:
        return attrs.evolve(self.shape, published=self)

    @_bits.default
    def _bit_by_name(self) -> Mapping[tuple[str, str, str], int]:
        listed = [(bit, each) for bit, each in enumerate(self.devices) if each is not None]
        return {(each.driver, each.pool, each.name): bit for bit, each in listed}

    @property
    def all(self) -> int:
        return (1 << len(self.devices)) - 1

    @property
    def has_neuron(self) -> bool:
        return any(each is None or each.is_neuron for each in self.devices[:1])

    def keys_of(self, sets: Sequence[int], node_name: str) -> list[DeviceKey]:
        """Return the devices of some sets on a node, in their order."""
        chosen = (self.devices[bit] for each in sets for bit in bits_of(each))
        return [DeviceKey(each.driver, each.pool or node_name, each.name) for each in chosen if each]

    def bits_of(self, devices: Iterable[DeviceKey], node_name: str) -> CoreMask:
        """Return what is held with some devices of a node; those that are not published are left out."""
        held = 0
        for key in devices:
            bit = self._bits.get((key.driver, "" if key.pool == node_name else key.pool, key.name))
            held |= 0 if bit is None else self.holds[bit]
        return CoreMask(held)

    def matching(self, selectors: tuple[str, ...]) -> int | CelError:
        """Return the devices that all selectors match, or the first runtime error."""
        if selectors not in self._matching:
            if len(self._matching) >= _MOST_ANSWERS:
                self._matching.clear()
            self._matching[selectors] = self._match(selectors)
        return self._matching[selectors]

    def _match(self, selectors: Sequence[str]) -> int | CelError:
        found = 0
        for bit, each in enumerate(self.devices):
            result = each is not None and _is_matched(each, selectors)
            if isinstance(result, CelError):
                return result
            found |= result << bit
        return found

    def alike(self, attribute: str) -> tuple[int, ...]:
        """Return the devices with the same value of an attribute, for each value; those without it are in none."""
        if attribute not in self._alike:
            groups = dict[tuple[type, AttributeValue, str], int]()
            for bit, each in enumerate(self.devices):
                value = None if each is None else each.attributes.get(attribute)
                if value is not None:
                    key = type(value), value, getattr(value, "build", "")
                    groups[key] = groups.get(key, 0) | 1 << bit
            if len(self._alike) >= _MOST_ANSWERS:
                self._alike.clear()
            self._alike[attribute] = tuple(groups.values())
        return self._alike[attribute]

    def place(self, free: int, wanted: WantedDevices) -> Placement | None:
        """Return the best devices for a pod's claims within the free ones, or None if there are none."""
        demands = demands_of(self, wanted)
        if isinstance(demands, str):
            return None
        choice = choose(self.shape, free & self.all, self.holds, demands, self._constraints(wanted))
        if choice is None:
            return None
        mask = reduce(or_, (self.holds[bit] for chosen in choice.sets for bit in bits_of(chosen)), 0)
        ids = tuple(bits_of(mask & int(self.shape.all_cores)))
        return Placement(ids, (ids,), CoreMask(mask), choice.level, sets=choice.sets)

    def why_never(self, wanted: WantedDevices) -> str | None:
        """Return why the claims never get devices here, however few are held; None if they may."""
        demands = demands_of(self, wanted)
        if isinstance(demands, str):
            return demands
        without_taints = tuple(attrs.evolve(each, allowed=each.matching & self.given) for each in demands)
        if choose(self.shape, self.all, self.holds, demands, self._constraints(wanted)) is not None:
            return None
        if choose(self.shape, self.all, self.holds, without_taints, self._constraints(wanted)) is not None:
            taints = {taint.key for each in self.devices if each is not None for taint in each.taints}
            return TAINTED.format(list_of(sorted(taints)))
        return NEVER

    def _constraints(self, wanted: WantedDevices) -> Constraints:
        return tuple((self.alike(attribute), numbers) for attribute, numbers in wanted.constraints)

    def tolerated_by(self, tolerations: Sequence[Toleration]) -> int:
        """Return the devices without a taint that keeps off requests with these tolerations."""
        are_tolerated = (each is not None and tolerates_all(tolerations, each.taints) for each in self.devices)
        return sum(1 << bit for bit, is_tolerated in enumerate(are_tolerated) if is_tolerated)


def _is_matched(device: Device, selectors: Iterable[str]) -> bool | CelError:
    """Return whether all selectors match; none is tried after one that does not, so a class keeps other drivers off."""
    for selector in map(compile_selector, selectors):
        if isinstance(selector, str):
            return False
        result = selector.matches(device.driver, device.attributes, device.capacity)
        if isinstance(result, CelError):
            return CelError(f"device {device.name}: {result.text}")
        if not result:
            return False
    return True


@memoise(maxsize=MOST_REMEMBERED)
def demands_of(devices: DeviceSet, wanted: WantedDevices) -> tuple[DeviceDemand, ...] | str:
    """Return what each request may get of a set; or a sentence, such as that a selector fails on one of its devices."""
    demands, counts = list[DeviceDemand](), Counter[int]()
    for request in wanted.requests:
        matching = devices.matching(request.selectors)
        if isinstance(matching, CelError):
            return FAILS.format(request.name, matching.text)
        if not (request.count or devices.is_complete):
            return INCOMPLETE
        demands.append(
            DeviceDemand(matching, matching & devices.given & devices.tolerated_by(request.tolerations), request.count)
        )
        counts[request.claim] += request.count or matching.bit_count()
    return TOO_MANY if max(counts.values(), default=0) > MOST_OF_A_CLAIM else tuple(demands)


_SETS: Final[WeakValueDictionary[tuple[tuple[Device, ...], str], DeviceSet]] = WeakValueDictionary()


def device_set(published: tuple[Device, ...], instance_type: str) -> DeviceSet:
    """Return the set of the devices of a node, which are in their order; equal ones are one object."""
    known = _SETS.get((published, instance_type))
    return known or _SETS.setdefault((published, instance_type), _device_set(published, instance_type))


def _device_set(published: Sequence[Device], instance_type: str) -> DeviceSet:
    neuron = [each for each in published if each.is_neuron and each.attributes.get(_TYPE) != WHOLE]
    whole = [each for each in published if each.is_neuron and each.attributes.get(_TYPE) == WHOLE]
    said = next((each.attributes.get(_INSTANCE_TYPE) for each in (*neuron, *whole)), None)
    instance_type = said.removeprefix("ml.") if isinstance(said, str) else instance_type
    slots = _by_id(neuron)
    if whole and not slots:
        known = INSTANCE_TYPES.get(instance_type)
        slots = [None] * (1 if known is None else known.devices)
    devices = (*slots, *whole, *(each for each in published if not each.is_neuron))
    all_neuron, behind = (1 << len(slots)) - 1, len(slots) + len(whole)
    holds = tuple(1 << bit | (all_neuron if len(slots) <= bit < behind else 0) for bit in range(len(devices)))
    given = reduce(or_, (1 << bit for bit, each in enumerate(devices) if each and not each.unserved), 0)
    is_complete = all(each.unserved != NO_POOL for each in published)
    shape = shape_of(instance_type, len(slots)) if slots else Shape.FLAT
    machine = Machine(instance_type, shape, len(slots) or len(devices), 1, frozenset({Unit.DEVICE}))
    return DeviceSet(devices, holds, given, is_complete, machine)


def _by_id(neuron: Sequence[Device]) -> Sequence[Device | None]:
    """Return Neuron devices by id; as they are, by name, if the ids are not those of one machine."""
    by_id = {each.attributes.get(_ID): each for each in neuron}
    return [by_id[number] for number in range(len(neuron))] if by_id.keys() == {*range(len(neuron))} else neuron
