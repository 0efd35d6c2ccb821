"""
What is to be written to a pod's claims once it has a node: the devices of each, and that the pod may use them.

Upstream: `Reserve` and `bindClaim` of `plugins/dynamicresources`. Parameters of classes come before those of claims.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.claims import Claims, allocation_results
from neuron_scheduler.model.devices import DeviceKey, DeviceRequest, ResourceClaim
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision

_SOURCES: Final = ("FromClass", "FromClaim")


@attrs.frozen
class ClaimWrite:
    """
    What one claim gets.

    Attributes:
        claim: as it was when the pod was decided.
        devices: what it has then.
        allocation: its `status.allocation`, without the time; None if it has devices already.
    """

    claim: ResourceClaim
    devices: tuple[DeviceKey, ...]
    allocation: Mapping[str, Any] | None = None


@attrs.frozen
class ClaimPlan:
    """What is to be written before a pod is bound."""

    node_name: str
    writes: tuple[ClaimWrite, ...]


def plan_claims(cluster: Cluster, pod: Pod, decision: Decision) -> ClaimPlan | None:
    """Return what is to be written to a pod's claims; None if it has none."""
    claims = cluster.claims
    if claims is None or not pod.claims:
        return None
    return ClaimPlan(decision.node_name, tuple(_writes(cluster, claims, pod, decision)))


def _writes(cluster: Cluster, claims: Claims, pod: Pod, decision: Decision) -> Iterator[ClaimWrite]:
    row, results = cluster.node(decision.node_name), dict[int, list[tuple[str, DeviceKey]]]()
    if pod.neuron is not None and pod.neuron.wanted is not None and decision.placement is not None and row is not None:
        sets, wanted = decision.placement.sets, pod.neuron.wanted
        results = {**allocation_results(row.node.published, decision.node_name, wanted, sets)}
    number = 0
    for key in dict.fromkeys(f"{pod.namespace}/{reference.claim_name}" for reference in pod.claims):
        claim = claims.claims.get(key)
        if claim is None:
            continue
        if claim.allocation is not None:
            yield ClaimWrite(claim, claim.allocation.devices)
        else:
            gets = results.get(number, [])
            devices, number = tuple(key for _, key in gets), number + 1
            yield ClaimWrite(claim, devices, _allocation(claims, claim, gets, decision.node_name))


def _allocation(
    claims: Claims, claim: ResourceClaim, results: Sequence[tuple[str, DeviceKey]], node_name: str
) -> Mapping[str, Any]:
    requests = {request.name: request for request in claim.requests}
    config = [*_configs_of_classes(claims, claim), *_configs_of(claim)]
    devices: dict[str, Any] = {"results": [_result(requests[name], key) for name, key in results]}
    if config:
        devices["config"] = config
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [term]}}


def _result(request: DeviceRequest, key: DeviceKey) -> Mapping[str, Any]:
    result: dict[str, Any] = {"request": request.name, "driver": key.driver, "pool": key.pool, "device": key.name}
    if request.tolerations_json:
        result["tolerations"] = msgspec.Raw(request.tolerations_json)
    return result


def _configs_of_classes(claims: Claims, claim: ResourceClaim) -> Iterator[Mapping[str, Any]]:
    for request in claim.requests:
        for opaque in claims.configs_of(request.class_name):
            yield {"source": _SOURCES[0], "requests": [request.name], "opaque": msgspec.Raw(opaque)}


def _configs_of(claim: ResourceClaim) -> Iterator[Mapping[str, Any]]:
    for config in claim.config:
        requests = {"requests": config.requests} if config.requests else {}
        yield {"source": _SOURCES[1], **requests, "opaque": msgspec.Raw(config.opaque)}
