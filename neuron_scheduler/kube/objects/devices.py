"""
Objects of Dynamic Resource Allocation -> `model.devices`, and how they are listed and watched.

Fields whose meaning is not known are looked for wherever the API adds some: what has one is kept with a sentence that
names it. Equal devices of many nodes are one object. Opaque parameters are kept as bytes, because drivers and the API
server compare bytes. Source: `resource/v1/types.go` in k8s.io/api 0.37.
"""

from collections.abc import Collection, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Resource, byte_bounded_memo, intern
from neuron_scheduler.kube.objects.selectors import node_term, taint, tolerations
from neuron_scheduler.kube.objects.wire import TaintFields, Wire
from neuron_scheduler.model.devices import (
    AttributeValue,
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
from neuron_scheduler.model.selectors import Taint
from neuron_scheduler.model.version import Version

_GROUP: Final = "/apis/resource.k8s.io/v1"
_UNSET: Final = (b"null", b"false", b"[]", b"{}", b'""')
_T = TypeVar("_T")
_Fields = dict[str, msgspec.Raw]


class _Meta(wire.ObjectMeta):
    finalizers: list[str] | None = None


class _Object(Wire):
    metadata: _Meta
    spec: _Fields
    status: _Fields | None = None


class _Pool(Wire):
    name: str
    generation: int
    resource_slice_count: int


class _Consumer(Wire):
    resource: str
    uid: str
    name: str = ""
    api_group: str = ""


class _Result(Wire):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


def _unserved_field(fields: Mapping[str, msgspec.Raw], served: Collection[str], where: str = "") -> str:
    """Return which field is set that is not served, with where it is; empty if there is none."""
    found = next((name for name, raw in fields.items() if name not in served and bytes(raw) not in _UNSET), "")
    return f"{where}{found}" if found else ""


def _decode(raw: msgspec.Raw | None, shape: type[_T], default: _T) -> _T:
    return default if raw is None or bytes(raw) == b"null" else msgspec.json.decode(raw, type=shape)


_DEVICE: Final = frozenset({"name", "attributes", "capacity", "taints"})
_EFFECTS: Final = ("NoSchedule", "NoExecute")
_KINDS: Final = {"int": int, "bool": bool, "string": str, "version": str}


@byte_bounded_memo(most=16 << 20)
def _device(driver_and_raw: tuple[str, bytes]) -> Device:
    """Return a device; those of many nodes are written alike."""
    driver, raw = driver_and_raw
    fields = msgspec.json.decode(raw, type=_Fields)
    attributes, unserved = dict[str, AttributeValue](), _unserved_field(fields, _DEVICE)
    for name, value in _decode(fields.get("attributes"), dict[str, dict[str, Any]], {}).items():
        kind, content = next(iter(value.items()), ("", None))
        if len(value) != 1 or not isinstance(content, _KINDS.get(kind, type(None))):
            unserved = unserved or f"attributes[{name}].{kind}"
            continue
        qualified = intern(name if "/" in name else f"{driver}/{name}")
        parsed = Version.parse(str(content)) if kind == "version" else content
        attributes[qualified] = cast(AttributeValue, parsed)
    capacity = {
        intern(name if "/" in name else f"{driver}/{name}"): str(value["value"])
        for name, value in _decode(fields.get("capacity"), dict[str, dict[str, Any]], {}).items()
    }
    name = intern(_decode(fields.get("name"), str, ""))
    return Device(
        driver,
        raw,
        name,
        attributes,
        capacity,
        _taints(_decode(fields.get("taints"), list[TaintFields], [])),
        unserved,
    )


def _taints(structs: Iterable[TaintFields]) -> tuple[Taint, ...]:
    """Return taints without those that only inform."""
    return tuple(taint((each.key, each.value or "", each.effect)) for each in structs if each.effect in _EFFECTS)


_SLICE: Final = frozenset({"driver", "pool", "nodeName", "devices"})


def _slice(struct: _Object) -> ResourceSlice:
    spec, meta = struct.spec, struct.metadata
    driver, pool = intern(_decode(spec.get("driver"), str, "")), msgspec.json.decode(spec["pool"], type=_Pool)
    node_name = intern(_decode(spec.get("nodeName"), str, ""))
    return ResourceSlice(
        uid=meta.uid,
        name=meta.name,
        driver=driver,
        pool=intern(pool.name),
        generation=pool.generation,
        slice_count=pool.resource_slice_count,
        node_name=node_name,
        devices=tuple(_device((driver, bytes(raw))) for raw in _decode(spec.get("devices"), list[msgspec.Raw], [])),
        unserved=_unserved_field(spec, _SLICE) or ("" if node_name else "no nodeName"),
    )


def _class(struct: _Object) -> DeviceClass:
    spec = struct.spec
    selectors, unserved = _selectors_in(spec.get("selectors"))
    configs = _decode(spec.get("config"), list[_Fields], [])
    beyond = next(filter(None, (_unserved_field(config, ("opaque",), "config.") for config in configs)), "")
    return DeviceClass(
        uid=struct.metadata.uid,
        name=intern(struct.metadata.name),
        selectors=selectors,
        config=tuple(bytes(config["opaque"]) for config in configs if "opaque" in config),
        unserved=_unserved_field(spec, ("selectors", "config", "extendedResourceName")) or unserved or beyond,
    )


def _selectors_in(raw: msgspec.Raw | None) -> tuple[tuple[str, ...], str]:
    """Return the expressions, and which field beside them is not served."""
    selectors = _decode(raw, list[_Fields], [])
    unserved = next(filter(None, (_unserved_field(selector, ("cel",), "selectors.") for selector in selectors)), "")
    expressions = (_decode(selector.get("cel"), dict[str, str], {}).get("expression", "") for selector in selectors)
    return tuple(map(intern, expressions)), unserved


_EXACTLY: Final = frozenset({"deviceClassName", "selectors", "allocationMode", "count", "tolerations"})


def _request(fields: _Fields) -> tuple[DeviceRequest, str]:
    name = _decode(fields.get("name"), str, "")
    exactly = _decode(fields.get("exactly"), _Fields, {})
    selectors, unserved = _selectors_in(exactly.get("selectors"))
    mode, raw = _decode(exactly.get("allocationMode"), str, "ExactCount"), exactly.get("tolerations")
    unserved = _unserved_field(fields, ("name", "exactly")) or _unserved_field(exactly, _EXACTLY) or unserved
    if mode not in ("ExactCount", "All"):
        unserved = unserved or f"allocationMode {mode}"
    request = DeviceRequest(
        name=intern(name),
        class_name=intern(_decode(exactly.get("deviceClassName"), str, "")),
        count=0 if mode == "All" else _decode(exactly.get("count"), int, 1),
        selectors=selectors,
        tolerations=tolerations(_decode(raw, list[wire.Toleration], [])),
        tolerations_json=b"" if raw is None else bytes(raw),
    )
    return request, f'request "{name}": {unserved}' if unserved else ""


_MOST_KEPT: Final = 16 << 10
"""Bytes of a claim's spec; a larger one is not kept, nor served. The API server takes megabytes."""


def _claim(struct: _Object) -> ResourceClaim:
    meta, status = struct.metadata, struct.status or {}
    size = sum(len(bytes(raw)) for raw in struct.spec.values())
    spec = struct.spec if size <= _MOST_KEPT else {}
    devices = _decode(spec.get("devices"), _Fields, {})
    requests = [_request(fields) for fields in _decode(devices.get("requests"), list[_Fields], [])]
    constraints = _decode(devices.get("constraints"), list[_Fields], [])
    configs = _decode(devices.get("config"), list[_Fields], [])
    consumers = _decode(status.get("reservedFor"), list[_Consumer], [])
    unserved = (
        f"a spec of {size:,} bytes" if spec is not struct.spec else "",
        _unserved_field(spec, ("devices",)),
        _unserved_field(devices, ("requests", "constraints", "config")),
        *(sentence for _, sentence in requests),
        *(_unserved_field(each, ("requests", "matchAttribute"), "constraints.") for each in constraints),
        *(_unserved_field(each, ("requests", "opaque"), "config.") for each in configs),
    )
    return ResourceClaim(
        uid=meta.uid,
        namespace=intern(meta.namespace),
        name=meta.name,
        resource_version=meta.resource_version,
        owner_uid=next((owner.uid for owner in meta.owner_references or () if owner.controller), ""),
        requests=tuple(request for request, _ in requests),
        constraints=tuple(
            MatchAttribute(_decode(each.get("matchAttribute"), str, ""), _names(each.get("requests")))
            for each in constraints
        ),
        config=tuple(
            ClaimConfig(bytes(each["opaque"]), _names(each.get("requests"))) for each in configs if "opaque" in each
        ),
        unserved=next(filter(None, unserved), ""),
        allocation=_allocation(status["allocation"]) if "allocation" in status else None,
        reserved_for={each.uid: each.name for each in consumers if each.resource == "pods" and not each.api_group},
        reserved_for_others=any(each.resource != "pods" or each.api_group for each in consumers),
        terminating=meta.deletion_timestamp is not None,
        finalizers=tuple(meta.finalizers or ()),
    )


def _names(raw: msgspec.Raw | None) -> tuple[str, ...]:
    return tuple(map(intern, _decode(raw, list[str], [])))


def _allocation(raw: msgspec.Raw) -> ClaimAllocation | None:
    fields = msgspec.json.decode(raw, type=_Fields | None)
    if fields is None:
        return None
    results = _decode(_decode(fields.get("devices"), _Fields, {}).get("results"), list[_Result], [])
    on = _decode(fields.get("nodeSelector"), wire.NodeTerms, wire.NodeTerms())
    return ClaimAllocation(
        tuple(DeviceKey(intern(r.driver), intern(r.pool), intern(r.device)) for r in results if not r.admin_access),
        None if on.node_selector_terms is None else tuple(map(node_term, on.node_selector_terms)),
    )


_SELECTED: Final = ("driver", "pool", "device")


def _taint_rule(struct: _Object) -> DeviceTaintRule:
    selector = _decode(struct.spec.get("deviceSelector"), _Fields, {})
    unset = None if "deviceSelector" in struct.spec else ""  # an empty selector selects all, none selects nothing
    driver, pool, device = (_decode(selector.get(name), str, "") or unset for name in _SELECTED)
    return DeviceTaintRule(
        uid=struct.metadata.uid,
        name=struct.metadata.name,
        taints=_taints([msgspec.json.decode(struct.spec["taint"], type=TaintFields)]),
        driver=driver,
        pool=pool,
        device=device,
        unserved=_unserved_field(selector, _SELECTED, "deviceSelector."),
    )


def _resource(plural: str, kind: str, read: Any, sort_key: str) -> Resource[Any]:
    return Resource(path=f"{_GROUP}/{plural}", kind=kind, shape=_Object, read=read, sort_key=attrgetter(sort_key))


SLICES: Final[Resource[ResourceSlice]] = _resource("resourceslices", "ResourceSlice", _slice, "name")
CLASSES: Final[Resource[DeviceClass]] = _resource("deviceclasses", "DeviceClass", _class, "name")
CLAIMS: Final[Resource[ResourceClaim]] = _resource("resourceclaims", "ResourceClaim", _claim, "key")
TAINT_RULES: Final[Resource[DeviceTaintRule]] = _resource("devicetaintrules", "DeviceTaintRule", _taint_rule, "name")
"""Served since Kubernetes 1.37."""
CLAIM_KINDS: Final[tuple[Resource[Any], ...]] = (SLICES, CLASSES, CLAIMS)
"""What is watched where claims are on, in the order of the lists."""
