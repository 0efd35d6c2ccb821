"""Selectors match the devices that upstream's own CEL compiler says they match."""

import random
import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from neuron_scheduler.model.version import Version
from neuron_scheduler.neuron.claims.cel import Attribute, CelError, DeviceSelector, compile_selector
from tests.control_plane.binaries import kubernetes_version, releases
from tests.neuron.claims.expressions import Device, Source
from tests.neuron.claims.oracle import ALLOCATOR, END_TO_END, SOURCE, answers

pytestmark = [
    pytest.mark.control_plane,  # the program is compiled with it
    pytest.mark.timeout(400),  # it may have to be compiled first
]

EXPRESSIONS: Final = 30_000
"""Of which upstream compiles two thirds."""
DEVICES: Final = 4
"""For each expression."""


def qualified(device: Device, name: str) -> str:
    return name if "/" in name else f"{device.driver}/{name}"


def attribute(kind: str, value: bool | int | str) -> Attribute:
    version = Version.parse(str(value)) if kind == "version" else None
    return version or value


def ours(selector: DeviceSelector, device: Device) -> bool | CelError:
    return selector.matches(
        device.driver,
        {
            qualified(device, name): attribute(*each)
            for name, value in device.attributes.items()
            for each in value.items()
        },
        {qualified(device, name): value for name, value in device.capacity.items()},
    )


def test_random_expressions_match_as_upstream_says() -> None:
    """Nothing is answered wrongly, one expression of twenty at most is refused, and each answer is common."""
    source = Source(random.Random(38))
    cases = [(source.expression(), [source.device() for _ in range(DEVICES)]) for _ in range(EXPRESSIONS)]
    counts, wrong = Counter[str](), []
    for (expression, devices), upstreams in zip(cases, answers(cases), strict=True):
        if upstreams is None:
            continue
        selector = compile_selector(expression)
        counts["refused" if isinstance(selector, str) else "served"] += 1
        if isinstance(selector, str):
            continue
        for device, upstream in zip(devices, upstreams, strict=True):
            answer = ours(selector, device)
            counts["error" if upstream.error else str(upstream.matches)] += 1
            if isinstance(answer, CelError) != bool(upstream.error) or (
                not upstream.error and answer != upstream.matches
            ):
                wrong.append((expression, device, answer, upstream))
    assert sorted(wrong, key=lambda each: len(each[0]))[:3] == []
    assert counts["served"] >= 20_000
    assert counts["refused"] <= counts["served"] // 20
    assert min(counts["True"], counts["False"], counts["error"]) >= 10_000


@pytest.mark.parametrize("source", [SOURCE, ALLOCATOR, END_TO_END])
def test_upstream_is_of_the_newest_release(source: Path) -> None:
    """Whoever adopts a release of Kubernetes compares with its code."""
    pinned = re.search(r"k8s.io/dynamic-resource-allocation v0(\S+)", (source / "go.mod").read_text())
    assert pinned is not None
    assert f"v1{pinned[1]}" == kubernetes_version(releases()[-1])
