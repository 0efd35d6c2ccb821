"""
Random nodes with devices, and pods' claims on them, as the API has them.

There are few names and few values, so that requests compete and constraints bind.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import attrs

Object = dict[str, Any]

NODE: Final = "n"
NEURON: Final = "neuron.aws.com"
DRIVERS: Final = (NEURON, NEURON, NEURON, "dra.net", "dra.net", "gpu.example.com")
GROUPS: Final = ("resource.aws.com/devicegroup2_id", "resource.aws.com/devicegroup4_id")
OF_CLASSES: Final = {
    NEURON: [f"device.driver == '{NEURON}'"],
    "efa": ["device.driver == 'dra.net'"],
    "any": [],
    "even": [f"device.driver == '{NEURON}'", f"device.attributes['{NEURON}'].?deviceId.orValue(1) in [0, 2, 4, 6, 8]"],
}
SELECTORS: Final = (
    f"'deviceId' in device.attributes['{NEURON}'] && device.attributes['{NEURON}'].deviceId < 4",
    f"device.attributes['{NEURON}'].deviceId >= 2",
    f"device.attributes['{NEURON}'].kind == 'a'",
    f"device.attributes['{NEURON}'].?kind.orValue('b') == 'b'",
    "device.attributes['resource.aws.com'].?devicegroup4_id.orValue('g1') == 'g1'",
    "device.driver != 'dra.net'",
)
TOLERATIONS: Final[Sequence[Object]] = (
    {"operator": "Exists"},
    {"key": "sick", "operator": "Exists"},
    {"key": "sick", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
    {"key": "hot", "value": "no"},
)
TAINTS: Final[Sequence[Object]] = (
    {"key": "sick", "value": "yes", "effect": "NoSchedule"},
    {"key": "sick", "effect": "NoExecute"},
    {"key": "hot", "value": "no", "effect": "NoSchedule"},
    {"key": "hot", "effect": "None"},
)


@attrs.frozen
class Case:
    """What the program `allocator` reads; `held` are devices of other claims."""

    slices: Sequence[Object]
    classes: Sequence[Object]
    claims: Sequence[Object]
    held: Sequence[Object]
    node: str = NODE


def devices_of(slices: Sequence[Object]) -> list[Object]:
    """Return driver, pool and name of each device."""
    return [
        {"driver": spec["driver"], "pool": spec["pool"]["name"], "name": each["name"]}
        for spec in (each["spec"] for each in slices)
        for each in spec["devices"]
    ]


def _object(name: str, spec: Object) -> Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "namespace": "default"}, "spec": spec}


@attrs.define(eq=False)
class Source:
    """Where cases come from."""

    _dice: Random

    def case(self) -> Case:
        names = self._dice.sample((NODE, f"pool-{NODE}"), 2)
        slices = [each for name in names for each in self._pool(name, self._dice.choice(DRIVERS))]
        return Case(
            slices=slices,
            classes=[
                _object(name, {"selectors": [{"cel": {"expression": each}} for each in expressions]})
                for name, expressions in OF_CLASSES.items()
            ],
            claims=[self._claim(f"c{number}") for number in range(self._dice.choice((1, 1, 1, 1, 2, 3)))],
            held=[each for each in devices_of(slices) if self._often(0.07)],
        )

    def _often(self, share: float) -> bool:
        return self._dice.random() < share

    def _pool(self, name: str, driver: str) -> list[Object]:
        """Return the slices of a pool: mostly one, rarely not all of them, or with a name twice."""
        count = self._dice.choice((2, 4, 4, 5) if driver == NEURON else (1, 2, 2))
        ids = [*range(count)]
        if self._often(0.2):
            self._dice.shuffle(ids)
        devices = [self._device(driver, place, number) for place, number in enumerate(ids)]
        cut = self._dice.randrange(count) if self._often(0.2) else 0
        parts = [part for part in (devices[:cut], devices[cut:]) if part]
        if self._often(0.03):
            parts[-1].append(self._device(driver, 0, count))
        missing = int(self._often(0.03))
        pool = {"name": name, "generation": 2, "resourceSliceCount": len(parts) + missing}
        old = [(pool | {"generation": 1}, devices[:1])] if self._often(0.1) else []
        return [
            _object(
                f"{name}-{number}",
                {"driver": driver, "nodeName": NODE, "pool": of, "devices": part},
            )
            for number, (of, part) in enumerate([*((pool, part) for part in parts), *old])
        ]

    def _device(self, driver: str, place: int, number: int) -> Object:
        attributes: Object = {} if self._often(0.1) else {"kind": {"string": self._dice.choice("ab")}}
        if driver == NEURON and not self._often(0.04):
            attributes[self._dice.choice(("deviceId", f"{NEURON}/deviceId"))] = {"int": number}
        for name, size in zip(GROUPS, (2, 4), strict=True):
            if not self._often(0.05):
                attributes[name] = {"string": f"g{number // size}"} if not self._often(0.03) else {"int": 1}
        device: Object = {"name": f"device-{place}", "attributes": attributes}
        if self._often(0.08):
            device["taints"] = self._dice.sample(TAINTS, self._dice.choice((1, 1, 2)))
        if self._often(0.02):
            device |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
        return device

    def _claim(self, name: str) -> Object:
        requests = [self._request(f"r{number}") for number in range(self._dice.choice((1, 1, 1, 2, 3)))]
        names = [each["name"] for each in requests]
        constraints = [
            {
                "matchAttribute": self._dice.choice((*GROUPS, *GROUPS, f"{NEURON}/kind", "dra.net/kind")),
                "requests": self._dice.sample(names, self._dice.randint(0, len(names))),
            }
            for _ in range(self._dice.choice((0, 0, 1, 1, 2)))
        ]
        return _object(name, {"devices": {"requests": requests, "constraints": constraints}})

    def _request(self, name: str) -> Object:
        exactly: Object = {
            "deviceClassName": self._dice.choice((NEURON, NEURON, NEURON, "efa", "any", "even")),
            "allocationMode": "ExactCount",
            "count": self._dice.choice((1, 1, 1, 1, 2, 2, 3, 4)),
        }
        if self._often(0.1):
            exactly |= {"allocationMode": "All", "count": 0}
        if self._often(0.3):
            chosen = self._dice.sample(SELECTORS, self._dice.choice((1, 1, 2)))
            exactly["selectors"] = [{"cel": {"expression": each}} for each in chosen]
        if self._often(0.3):
            exactly["tolerations"] = self._dice.sample(TOLERATIONS, self._dice.choice((1, 1, 2)))
        return {"name": name, "exactly": exactly}
