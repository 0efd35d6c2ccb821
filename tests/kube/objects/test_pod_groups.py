"""PodGroups of both API groups: counts, topologies, and what cannot be read."""

from typing import Any

import pytest

from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.pod_groups import POD_GROUPS
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup, PodGroupObject
from tests.support.wire_objects import encoded

NATIVE, OLDER, COSCHEDULING = POD_GROUPS
METADATA = {"name": "train", "namespace": "ml", "uid": "u", "resourceVersion": "7"}


def gang(count: Any, *keys: str) -> Any:
    """Return the spec of a native PodGroup."""
    constraints = {"schedulingConstraints": {"topology": [{"key": key} for key in keys]}} if keys else {}
    return {"schedulingPolicy": {"gang": {"minCount": count}}, "disruptionMode": {"single": {}}, **constraints}


@pytest.mark.parametrize(
    ("resource", "spec", "count", "topology"),
    [
        (COSCHEDULING, {"minMember": 4, "scheduleTimeoutSeconds": 60}, 4, ""),
        (COSCHEDULING, {"minMember": 100_000}, 100_000, ""),
        (COSCHEDULING, {"minMember": 0}, 1, ""),
        (COSCHEDULING, {}, 1, ""),
        (NATIVE, gang(3), 3, ""),
        (OLDER, gang(3, "rack"), 3, "rack"),
        (NATIVE, {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": None}, 1, ""),
        (NATIVE, {"parentCompositePodGroupName": "all", **gang(2)}, 2, ""),
    ],
    ids=range(8),
)
def test_what_a_pod_group_says(resource: Any, spec: Any, count: int, topology: str) -> None:
    """Without a count, members start as they fit."""
    key = GroupKey(Dialect(resource.group), "ml", "train")
    group = PodGroup(key, count, count, topology, fails_together=None if resource is COSCHEDULING else False)
    value = PodGroupObject("u", group)
    assert resource.decode(encoded({"metadata": METADATA, "spec": spec})) == Decoded("ml/train", "u", "7", value)


def test_a_native_group_says_how_it_is_disrupted() -> None:
    """Its priority is that of the group, whatever its members say."""
    spec = {**gang(2), "disruptionMode": {"all": {}}, "priority": 7}
    decoded: Any = NATIVE.decode(encoded({"metadata": METADATA, "spec": spec})).value
    assert (decoded.group.fails_together, decoded.group.priority) == (True, 7)


UNREADABLE: list[Any] = [{"minMember": count} for count in (100_001, -1, "4", 2.5, [1], 1 << 70)]


@pytest.mark.parametrize("spec", [*UNREADABLE, 7, gang(-1)])
def test_what_cannot_be_read(spec: Any) -> None:
    """It is malformed, under its name, and the reason is short."""
    value = COSCHEDULING.decode(encoded({"metadata": METADATA, "spec": spec})).value
    assert isinstance(value, Malformed)
    assert (value.kind, value.key) == ("PodGroup", "ml/train")
