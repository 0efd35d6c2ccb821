"""
The same nodes and pods by claims: devices as AWS's driver publishes them, and pods with what AWS's templates ask for.
"""

import json
from typing import Final

import attrs

from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.kube.objects.devices import CLAIMS, CLASSES, SLICES
from neuron_scheduler.model.devices import ClaimReference, ResourceSlice
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from tests.support.device_objects import API, Object, devices, neuron_class, neuron_slice

GROUPS: Final = (4, 8)
"""The numbers of devices for which AWS's templates ask for one group."""


def with_groups(count: int) -> Object:
    """Return the spec of AWS's template for so many devices."""
    return devices(count, count if count in GROUPS else 0)


def encoded_slice(name: str, number: int = 0) -> bytes:
    """Return a node's slice as the API server sends it; 16 nodes are in one place of the network."""
    published = neuron_slice(name)
    place = {f"networkNodeLayer{layer}": {"string": f"nn-{number // 16 ** (4 - layer):017x}"} for layer in (1, 2, 3)}
    versions = {"neuronDriverVersion": {"string": "2.26.10.0"}, "draDriverVersion": {"version": "1.0.0"}}
    for bit, device in enumerate(published["spec"]["devices"]):
        ids = {"topology_x": bit % 4, "topology_y": bit // 4, "topology4_id": bit // 4, "topology8_id": bit // 8}
        device["attributes"] |= {key: {"int": value} for key, value in ids.items()} | versions | place
    published["metadata"] |= {"uid": f"slice-{name}", "resourceVersion": "1"}
    return json.dumps(published, separators=(",", ":")).encode()


def decoded_slice(line: bytes) -> ResourceSlice:
    value = SLICES.decode(line).value
    if not isinstance(value, ResourceSlice):
        raise TypeError(f"the slice cannot be read: {value}")
    return value


@attrs.define(eq=False)
class ByClaims:
    """
    Turns nodes and pods by counts into such by claims.

    Attributes:
        first: the number of the first node, which says where it is in the network.
    """

    first: int = 0
    claims: Claims = attrs.field(factory=Claims, init=False)

    def __attrs_post_init__(self) -> None:
        self._put(CLASSES, neuron_class())

    def _put(self, resource: object, item: Object) -> None:
        item["metadata"] |= {"uid": item["metadata"]["name"], "resourceVersion": "1"}
        self.claims.put(resource.decode(json.dumps(item).encode()).value)  # type: ignore[attr-defined]

    def node(self, node: Node) -> Node:
        """Return a node without counts, whose devices a driver publishes."""
        self.first += 1
        return self.publish(node, decoded_slice(encoded_slice(node.name, self.first)))

    def publish(self, node: Node, found: ResourceSlice) -> Node:
        self.claims.put(found)
        amounts = {name: amount for name, amount in node.allocatable.items() if name not in NEURON_NAMES}
        return self.claims.with_published(attrs.evolve(node, allocatable=amounts, capacity={}))

    def pod(self, pod: Pod) -> Pod:
        """Return a pod with a claim on as many devices."""
        if pod.neuron is None:
            return pod
        name = f"of-{pod.neuron.total}"
        if f"{pod.namespace}/{name}" not in self.claims.claims:
            metadata = {"name": name, "namespace": pod.namespace}
            spec = with_groups(pod.neuron.total)
            self._put(CLAIMS, {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec})
        requests = {name: amount for name, amount in pod.requests.items() if name not in NEURON_NAMES}
        raw = attrs.evolve(pod, requests=requests, neuron=None, claims=(ClaimReference("neurons", name),))
        return self.claims.resolve(raw)
