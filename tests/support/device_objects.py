"""Objects of Dynamic Resource Allocation, as AWS's driver publishes them and as users write them."""

from typing import Any, Final

Object = dict[str, Any]
DRIVER: Final = "neuron.aws.com"
PROTECTION: Final = "resource.kubernetes.io/delete-protection"
API: Final = "resource.k8s.io/v1"


def device(number: int) -> Object:
    groups = {f"resource.aws.com/devicegroup{size}_id": {"string": f"g{number // size}"} for size in (1, 4, 8, 16)}
    attributes = {
        "deviceId": {"int": number},
        "instanceType": {"string": "trn2.48xlarge"},
        "resourceType": {"string": "neuron_device"},
        **groups,
    }
    return {"name": f"neuron-device-{number}", "attributes": attributes}


def neuron_slice(node: str, count: int = 16) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": [device(number) for number in range(count)]}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def neuron_class() -> Object:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": {"selectors": selectors}}


def devices(count: int, group: int = 0, **exactly: Any) -> Object:
    request = {"name": "neurons", "exactly": {"deviceClassName": DRIVER, "count": count, **exactly}}
    attribute = f"resource.aws.com/devicegroup{group}_id"
    constraints = [{"requests": ["neurons"], "matchAttribute": attribute}] if group else []
    return {"devices": {"requests": [request], "constraints": constraints}}


def template(name: str, spec: Object) -> Object:
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec},
    }
