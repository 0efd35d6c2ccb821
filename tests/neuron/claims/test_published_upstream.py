"""A node has devices for a pod's claims where upstream's own allocator says that it has."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, cast

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.kube.objects.devices import CLAIMS, CLASSES, SLICES
from neuron_scheduler.model.devices import ClaimReference, DeviceKey, DeviceObject
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, select_node
from neuron_scheduler.scheduling.plugins.dynamic_resources import CEL_ERROR
from tests.neuron.claims.cases import NODE, Case, Object, Source, devices_of
from tests.neuron.claims.oracle import ALLOCATOR, asked
from tests.support.builders import node, pod
from tests.support.wire_objects import encoded

pytestmark = [
    pytest.mark.control_plane,  # the program is compiled with it
    pytest.mark.timeout(400),  # it may have to be compiled first
]

CASES: Final = 8_000


GIVES_UP: Final = "cannot add device"


def upstreams(cases: Sequence[Case]) -> list[Any]:
    return asked(ALLOCATOR, map(attrs.asdict, cases))


def holder_of(held: Sequence[Object]) -> Object:
    """Return a claim that has some devices."""
    results = [{"request": "r", **each, "device": each["name"]} for each in held]
    return {
        "metadata": {"name": "holder", "namespace": "default"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}},
    }


def ours(case: Case) -> tuple[DeviceKey, ...] | str:
    """Return which devices a pod with the claims gets, or why none."""
    table = Claims()
    claims = [*case.claims, holder_of(case.held)]
    for resource, objects in ((SLICES, case.slices), (CLASSES, case.classes), (CLAIMS, claims)):
        for each in objects:
            table.put(cast(DeviceObject, cast(Any, resource).decode(encoded(each)).value))
    cluster = Cluster(claims=table)
    row = cluster.put_node(node(NODE))
    names = [each["metadata"]["name"] for each in case.claims]
    asking = table.put_pod(pod("p", claims=tuple(ClaimReference(name, name) for name in names)))
    decision = select_node(cluster, asking, default_profile(asking.scheduler_name))
    if not isinstance(decision, Decision):
        return str(decision)
    assert decision.placement is not None
    return tuple(row.node.published.keys_of(decision.placement.sets, NODE))


def is_refused_on_purpose(case: Case, answer: str) -> bool:
    """Return whether a node may be refused that upstream takes: a selector fails there, or "all" are not served."""
    is_unserved = any("bindingConditions" in device for each in case.slices for device in each["spec"]["devices"])
    return CEL_ERROR in answer or (is_unserved and "'All'" in str(case.claims))


def test_it_says_yes_exactly_where_upstream_does() -> None:
    """But for what is refused on purpose; and upstream gives up where its choice for another request forbids "all"."""
    source = Source(random.Random(38))
    cases = [source.case() for _ in range(CASES)]
    counts, wrong, given = Counter[str](), [], list[Case]()
    for case, upstream in zip(cases, upstreams(cases), strict=True):
        answer = ours(case)
        if isinstance(answer, tuple):
            given.append(
                attrs.evolve(case, held=[each for each in devices_of(case.slices) if DeviceKey(**each) not in answer])
            )
        is_agreed = isinstance(answer, tuple) == upstream["fits"]
        counts["no" if isinstance(answer, str) else "yes"] += is_agreed
        counts["refused on purpose"] += not is_agreed and isinstance(answer, str)
        if not (is_agreed or GIVES_UP in upstream["error"]) and not (
            isinstance(answer, str) and is_refused_on_purpose(case, answer)
        ):
            wrong.append((case, upstream, answer))
    assert sorted(wrong, key=lambda each: len(str(each[0])))[:3] == []
    assert min(counts["yes"], counts["no"]) > CASES // 10
    assert counts["refused on purpose"] < CASES // 100
    refused = [each for each in upstreams(given) if not each["fits"] and GIVES_UP not in each["error"]]
    assert refused == []  # with all other devices held upstream finds these, too
