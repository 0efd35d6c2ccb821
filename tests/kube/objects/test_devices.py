"""Objects of Dynamic Resource Allocation as the API server writes them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.devices import CLAIMS, CLASSES, SLICES, TAINT_RULES
from neuron_scheduler.model.devices import (
    PROTECTION,
    ClaimAllocation,
    ClaimConfig,
    Device,
    DeviceClass,
    DeviceKey,
    DeviceRequest,
    DeviceTaintRule,
    MatchAttribute,
    ResourceClaim,
    ResourceSlice,
)
from neuron_scheduler.model.selectors import Effect, NodeSelectorTerm, Operator, Requirement, Taint
from neuron_scheduler.model.version import Version

NEURON = "neuron.aws.com"
POOL = {"name": "n", "generation": 3, "resourceSliceCount": 2}


def item(name: str = "o", *, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    """Return an object."""
    manifest: dict[str, Any] = {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7"} | metadata}
    return manifest | ({} if spec is None else {"spec": spec}) | ({} if status is None else {"status": status})


def read(resource: Any, manifest: Any) -> Any:
    """Return the value that is read from an object, or from its text."""
    text = manifest if isinstance(manifest, str) else json.dumps(manifest)
    return resource.decode(text.encode()).value


def slice_of(*devices: Any, **spec: Any) -> ResourceSlice:
    """Read a slice of one node."""
    given = {"driver": NEURON, "nodeName": "n", "pool": POOL, "devices": devices} | spec
    set_fields = {name: value for name, value in given.items() if value is not None}
    found: ResourceSlice = read(SLICES, item("s", spec=set_fields))
    return found


def device_of(**fields: Any) -> Device:
    """Read a device."""
    (found,) = slice_of({"name": "d", **fields}).devices
    return found


def claim_of(*, status: Any = None, **devices: Any) -> ResourceClaim:
    """Read a claim that asks for these."""
    found: ResourceClaim = read(CLAIMS, item("c", namespace="d", spec={"devices": devices}, status=status))
    return found


def class_of(**spec: Any) -> DeviceClass:
    found: DeviceClass = read(CLASSES, item(spec=spec))
    return found


def request(**exactly: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": NEURON, **exactly}}


def test_a_slice() -> None:
    """All fields that decide."""
    found = slice_of({"name": "d0"}, {"name": "d1"})
    assert [device.name for device in found.devices] == ["d0", "d1"]
    assert found == ResourceSlice("uid-s", "s", NEURON, "n", 3, 2, "n", found.devices)
    assert slice_of(devices=None).devices == ()


def test_values_of_attributes_and_capacities() -> None:
    """Names without a domain are the driver's; a version is compared as one."""
    values = {
        "deviceId": {"int": 3},
        "flag": {"bool": False},
        "kind": {"string": "trn2"},
        "example.com/release": {"version": "1.10.0"},
    }
    device = device_of(attributes=values, capacity={"memory": {"value": "96Gi"}, "example.com/x": {"value": "1"}})
    assert device.attributes == {
        f"{NEURON}/deviceId": 3,
        f"{NEURON}/flag": False,
        f"{NEURON}/kind": "trn2",
        "example.com/release": Version.parse("1.10.0"),
    }
    assert type(device.attributes[f"{NEURON}/flag"]) is bool
    assert device.capacity == {f"{NEURON}/memory": "96Gi", "example.com/x": "1"}
    assert device.unserved == ""


def test_taints_of_a_device() -> None:
    """When it was added is nobody's question; one with another effect only informs."""
    taints = [
        {"key": "a", "value": "v", "effect": "NoSchedule", "timeAdded": "2026-11-21T08:00:00Z"},
        {"key": "b", "effect": "None"},
    ]
    assert device_of(taints=taints).taints == (Taint("a", Effect.NO_SCHEDULE, "v"),)


def test_equal_devices_of_nodes_are_one_object() -> None:
    """What nodes of a kind share is kept once."""
    assert device_of(attributes={"x": {"int": 1}}) is device_of(attributes={"x": {"int": 1}})
    assert device_of(attributes={"x": {"int": 1}}) != device_of(attributes={"x": {"int": 2}})


@pytest.mark.parametrize(
    ("of", "fields", "want"),
    [
        (device_of, {"consumesCounters": [{}]}, "consumesCounters"),
        (device_of, {"allowMultipleAllocations": True}, "allowMultipleAllocations"),
        (device_of, {"allowMultipleAllocations": False, "bindingConditions": []}, ""),
        (device_of, {"tomorrow": 1}, "tomorrow"),
        (device_of, {"attributes": {"x": {"ints": [1]}}}, "attributes[x].ints"),
        (device_of, {"attributes": {"x": {"int": "1"}}}, "attributes[x].int"),
        (device_of, {"attributes": {"x": {}}}, "attributes[x]."),
        (slice_of, {"nodeName": None, "allNodes": True}, "allNodes"),
        (slice_of, {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": []}}, "nodeSelector"),
        (slice_of, {"nodeName": None}, "no nodeName"),
        (slice_of, {"skipNodeOperations": True}, "skipNodeOperations"),
        (slice_of, {"allNodes": False, "sharedCounters": []}, ""),
        (class_of, {"selectors": [{"other": {}, "wasm": "x"}]}, "selectors.wasm"),
        (class_of, {"config": [{"clear": 1}]}, "config.clear"),
        (class_of, {"suitableNodes": {"nodeSelectorTerms": [1]}}, "suitableNodes"),
        (claim_of, {"requests": [{"name": "r", "firstAvailable": [{}]}]}, 'request "r": firstAvailable'),
        (claim_of, {"requests": [request(adminAccess=True)]}, 'request "r": adminAccess'),
        (claim_of, {"requests": [request(adminAccess=False)]}, ""),
        (claim_of, {"requests": [request(capacity={"requests": {}})]}, 'request "r": capacity'),
        (claim_of, {"requests": [request(tomorrow=1)]}, 'request "r": tomorrow'),
        (claim_of, {"requests": [request(allocationMode="Some")]}, 'request "r": allocationMode Some'),
        (claim_of, {"requests": [request(selectors=[{"wasm": 1}])]}, 'request "r": selectors.wasm'),
        (claim_of, {"constraints": [{"distinctAttribute": "a/b"}]}, "constraints.distinctAttribute"),
        (claim_of, {"config": [{"clear": 1}]}, "config.clear"),
        (claim_of, {"tomorrow": 1}, "tomorrow"),
    ],
)
def test_a_field_that_is_not_known_is_named(of: Callable[..., Any], fields: dict[str, Any], want: str) -> None:
    """It is never guessed; the sentence says in which request."""
    assert of(**fields).unserved == want


def test_a_class() -> None:
    """Its parameters are kept byte for byte, with the blanks of who wrote them."""
    text = (
        '{"metadata": {"name": "k", "uid": "u"}, "spec": {"selectors": [{"cel": {"expression": "true"}}],'
        ' "extendedResourceName": "x/y", "config": [{"opaque": {"driver":  "d", "parameters": {"b": 1,"a": 2}}}]}}'
    )
    opaque = b'{"driver":  "d", "parameters": {"b": 1,"a": 2}}'
    assert read(CLASSES, text) == DeviceClass("u", "k", ("true",), (opaque,))
    assert read(CLASSES, item("k", spec={})) == DeviceClass("uid-k", "k", ())


def test_a_claim() -> None:
    """All fields that decide."""
    text = json.dumps(
        item(
            "c",
            namespace="d",
            deletionTimestamp="2026-11-21T08:00:00Z",
            finalizers=["other", PROTECTION],
            ownerReferences=[{"uid": "other"}, {"uid": "pod", "controller": True}],
            spec={
                "devices": {
                    "requests": [
                        request(count=4, selectors=[{"cel": {"expression": "true"}}]),
                        {"name": "all", "exactly": {"deviceClassName": "k", "allocationMode": "All"}},
                    ],
                    "constraints": [{"matchAttribute": "a/b"}, {"matchAttribute": "a/c", "requests": ["r"]}],
                    "config": [{"requests": ["r"], "opaque": {"driver": NEURON, "parameters": {"z": 1, "a": 2}}}],
                }
            },
            status={"reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}]},
        )
    )
    opaque = b'{"driver": "neuron.aws.com", "parameters": {"z": 1, "a": 2}}'
    assert read(CLAIMS, text) == ResourceClaim(
        uid="uid-c",
        namespace="d",
        name="c",
        resource_version="7",
        owner_uid="pod",
        requests=(DeviceRequest("r", NEURON, 4, ("true",)), DeviceRequest("all", "k", 0)),
        constraints=(MatchAttribute("a/b"), MatchAttribute("a/c", ("r",))),
        config=(ClaimConfig(opaque, ("r",)),),
        reserved_for={"u1": "p"},
        terminating=True,
        finalizers=("other", PROTECTION),
    )


def test_tolerations_are_kept_as_they_are_written() -> None:
    """They are copied to the allocation."""
    (found,) = claim_of(requests=[request(tolerations=[{"key": "k", "operator": "Exists"}])]).requests
    assert found.tolerations_json == b'[{"key": "k", "operator": "Exists"}]'
    assert [(each.key, each.exists) for each in found.tolerations] == [("k", True)]


def test_an_allocation() -> None:
    """What is only observed (adminAccess) is not held; without a selector it is good on every node."""
    results = [
        {"request": "r", "driver": NEURON, "pool": "n", "device": "d0"},
        {"request": "r", "driver": NEURON, "pool": "n", "device": "d1", "adminAccess": True},
    ]
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
    devices = {"results": results}
    on = {"nodeSelectorTerms": [{"matchFields": fields}]}
    key = DeviceKey(NEURON, "n", "d0")
    term = NodeSelectorTerm((), (Requirement("metadata.name", Operator.IN, ("n",)),))
    tied = claim_of(status={"allocation": {"devices": devices, "nodeSelector": on}})
    assert tied.allocation == ClaimAllocation((key,), (term,))
    assert claim_of(status={"allocation": {"devices": devices}}).allocation == ClaimAllocation((key,))
    assert claim_of(status={"allocation": {}}).allocation == ClaimAllocation(())
    assert claim_of(status={"allocation": None}).allocation is None


def test_whom_a_claim_is_reserved_for() -> None:
    """Pods of the core group; anything else is said."""
    users = [{"resource": "pods", "name": "p", "uid": "u1"}, {"resource": "pods", "apiGroup": "x", "uid": "u2"}]
    found = claim_of(status={"reservedFor": users})
    assert (found.reserved_for, found.reserved_for_others) == ({"u1": "p"}, True)
    assert not claim_of(status={"reservedFor": users[:1]}).reserved_for_others


TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param({"driver": NEURON, "device": "d"}, (NEURON, None, "d", ""), id="by driver and name"),
        pytest.param({}, (None, None, None, ""), id="all"),
        pytest.param({"tomorrow": "x"}, (None, None, None, "deviceSelector.tomorrow"), id="a field that is not known"),
        pytest.param(None, ("", "", "", ""), id="none"),
    ],
)
def test_which_devices_a_rule_taints(selector: Any, want: tuple[str | None, ...]) -> None:
    """An empty selector selects all; a rule without one selects none."""
    spec = {"taint": TAINT} | ({} if selector is None else {"deviceSelector": selector})
    driver, pool, device, unserved = want
    taints = (Taint("k", Effect.NO_EXECUTE, "v"),)
    assert read(TAINT_RULES, item("r", spec=spec)) == DeviceTaintRule(
        "uid-r", "r", taints, driver, pool, device, unserved or ""
    )


@pytest.mark.parametrize(
    ("resource", "manifest"),
    [
        (SLICES, item("s")),
        (SLICES, item("s", spec={"driver": NEURON, "nodeName": "n"})),
        (SLICES, item("s", spec={"driver": 1, "pool": POOL})),
        (SLICES, item("s", spec={"driver": NEURON, "pool": POOL, "devices": [{"attributes": 1}]})),
        (SLICES, item("s", spec={"driver": NEURON, "pool": POOL, "devices": [{"capacity": {"x": {}}}]})),
        (CLAIMS, item("c", spec={"devices": {"requests": [{"name": 1}]}})),
        (CLAIMS, item("c", spec={}, status={"allocation": {"devices": {"results": [{}]}}})),
        (CLASSES, item("k", spec={"selectors": [{"cel": 1}]})),
        (TAINT_RULES, item("r", spec={})),
        (TAINT_RULES, item("r", spec={"taint": {"key": "k"}})),
    ],
)
def test_incomplete_objects_are_malformed(resource: Any, manifest: Any) -> None:
    """Nothing is guessed, and the rest of a list is read."""
    assert isinstance(read(resource, manifest), Malformed)
