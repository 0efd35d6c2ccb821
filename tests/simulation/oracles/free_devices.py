"""
Whether a pod with claims fits on a node, by slices and claims as they are.

Reads no code of the scheduler, and finds no place in doubt: it takes devices one claim after the other.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from neuron_scheduler.model.pod import Pod
from tests.simulation.oracles.change import Object, metadata_of
from tests.simulation.oracles.claims import devices_of

_Free = dict[str, Mapping[str, Any]]
"""Devices by name."""


@attrs.define(eq=False)
class FreeDevices:
    """
    What nodes have, and claims hold, at a moment.

    Attributes:
        tables: the objects of the API server.
    """

    tables: Callable[[str], Iterable[Object]]
    _claims: dict[str, Object] = attrs.field(init=False)
    _held: frozenset[tuple[str, str, str]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        claims = [*self.tables("resourceclaims")]
        self._claims = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in claims}
        self._held = frozenset[tuple[str, str, str]]().union(*map(devices_of, claims))

    def fit(self, pod: Pod, node_name: str, beside: Iterable[Pod]) -> bool:
        """Return whether a pod's claims fit on a node beside pods that have space there, but no devices yet."""
        published = [each["spec"] for each in self.tables("resourceslices") if each["spec"]["nodeName"] == node_name]
        every = [each for spec in published if spec["pool"]["resourceSliceCount"] == 1 for each in spec["devices"]]
        held = {name for _, pool, name in self._held if pool == node_name}
        free = {each["name"]: each for each in every if each["name"] not in held and not each.get("taints")}
        claims = [*self._claims_of(pod)]
        is_ready = len(claims) == len(pod.claims) and all(_is_for(pod, claim) for claim in claims)
        others = [claim for other in beside for claim in self._claims_of(other)]
        return is_ready and all(_take(claim, node_name, free, len(every)) for claim in (*others, *claims))

    def _claims_of(self, pod: Pod) -> Iterator[Object]:
        for reference in pod.claims:
            claim = self._claims.get(f"{pod.namespace}/{reference.claim_name}")
            if claim is not None:
                yield claim


def _is_for(pod: Pod, claim: Object) -> bool:
    owners = {each["uid"] for each in metadata_of(claim).get("ownerReferences") or ()}
    return owners <= {pod.uid} and "deletionTimestamp" not in metadata_of(claim)


def _take(claim: Object, node_name: str, free: _Free, count: int) -> bool:
    """Take what a claim wants out of what is free; False if that is too little, or if it has devices elsewhere."""
    has = devices_of(claim)
    if has:
        return all(pool == node_name for _, pool, _ in has)
    spec = claim["spec"]["devices"]
    exactly, constraints = spec["requests"][0]["exactly"], spec.get("constraints") or ()
    wanted = exactly.get("count", 1) if exactly.get("allocationMode") != "All" else count
    blocks: dict[str, list[str]] = {}
    for name, device in free.items():
        block = device["attributes"][constraints[0]["matchAttribute"]]["string"] if constraints else ""
        blocks.setdefault(block, []).append(name)
    enough = [block for block in blocks.values() if len(block) >= wanted]
    for name in min(enough, key=len)[:wanted] if enough else ():
        del free[name]
    return bool(enough)
