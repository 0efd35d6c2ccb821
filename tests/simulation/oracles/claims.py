"""
No device is prepared twice, and each pod finds its claims as its kubelet needs them.

The kubelet's five checks hold from the Binding on for as long as the pod lives: a claim exists, is the pod's own if it
was made for it, has devices, on the pod's node, and is reserved for it. A claim gets devices only with the finalizer,
without which they would stay held for ever. When all is quiet, none has devices that no pod on a node uses.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from tests.simulation.oracles.change import Change, Key, Object, Oracle, key_of, metadata_of, named, uid_of
from tests.simulation.oracles.reading import bound_by_us, has_ended, node_name_of
from tests.support.device_objects import PROTECTION

DUE: Final = 30.0
"""Seconds in which devices that nobody uses are given back, or their pod gets its node."""


def keys_of(pod: Object) -> Iterator[tuple[Key, bool]]:
    """Yield the keys of a pod's claims, and whether each was made for this pod; the name is empty before that."""
    made = {each["name"]: each for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    for reference in (pod.get("spec") or {}).get("resourceClaims") or ():
        name, status = reference.get("resourceClaimName"), made.get(reference["name"])
        made_name = "" if status is None else status.get("resourceClaimName")
        if name or made_name is not None:  # the status may say that none is needed
            yield (key_of(pod)[0], name or made_name or ""), name is None


def problems_of(pod: Object, claim_of: Callable[[Key], Object | None]) -> Iterator[str]:
    """Yield why the kubelet of a pod's node does not prepare its claims."""
    for key, is_generated in keys_of(pod):
        claim = claim_of(key)
        if claim is None:
            yield f"its claim {key[1]!r} does not exist"
            continue
        owners = [each["uid"] for each in metadata_of(claim).get("ownerReferences") or () if each.get("controller")]
        users = {user["uid"] for user in _status(claim).get("reservedFor") or ()}
        if is_generated and owners != [uid_of(pod)]:
            yield f"its claim {key[1]} was made for another pod"
        if uid_of(pod) not in users:
            yield f"its claim {key[1]} is not reserved for it"
        if node_name_of(pod) not in {pool for _, pool, _ in devices_of(claim)}:
            yield f"its claim {key[1]} has no devices on {node_name_of(pod)}"


def devices_of(claim: Object | None) -> frozenset[tuple[str, str, str]]:
    """Return driver, pool and name of the devices that a claim has; AWS's pools have the names of their nodes."""
    allocation = {} if claim is None else _status(claim).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return frozenset((each["driver"], each["pool"], each["device"]) for each in results)


def _status(claim: Object) -> Mapping[str, Any]:
    return claim.get("status") or {}


@attrs.define(eq=False, kw_only=True)
class Claims(Oracle):
    """Follows claims, and the pods on nodes that use them."""

    _claims: dict[Key, Object] = attrs.field(factory=dict)
    _pods: dict[str, Object] = attrs.field(factory=dict)
    _ours: set[str] = attrs.field(factory=set)
    _idle_since: dict[str, float] = attrs.field(factory=dict)
    """By the claim's uid, since when it has devices that no pod on a node uses."""
    _reported: set[tuple[str, ...]] = attrs.field(factory=set)

    def changed(self, change: Change) -> None:
        if change.kind == "Pod" and (change.object.get("spec") or {}).get("resourceClaims"):
            self._follow(change)
        elif change.kind == "ResourceClaim":
            self._claims.pop(change.key, None)
            if change.after is not None:
                self._claims[change.key] = change.after
                self._is_protected(change)
        else:
            return
        for uid in self._ours:
            for problem in problems_of(self._pods[uid], self._claims.get):
                self._say(uid, f"{named(self._pods[uid])} is on {node_name_of(self._pods[uid])}, and {problem}")
        self._judge_use(change.at)

    def _follow(self, change: Change) -> None:
        pod = change.after
        if pod is None or has_ended(pod):
            self._pods.pop(change.uid, None)
            self._ours.discard(change.uid)
        elif node_name_of(pod):
            self._pods[change.uid] = pod
            if bound_by_us(change.previous, pod):
                self._ours.add(change.uid)

    def _is_protected(self, change: Change) -> None:
        before, finalizers = change.previous, metadata_of(change.object).get("finalizers") or ()
        if devices_of(change.object) and not devices_of(before) and PROTECTION not in finalizers:
            self.violated(f"claim {named(change.object)} gets devices, and has no finalizer")
        lost = {*(metadata_of(before or {}).get("finalizers") or ())} - {*finalizers, PROTECTION}
        if lost and change.author != "":
            self.violated(f"claim {named(change.object)} has lost the finalizer {', '.join(lost)}")

    def _judge_use(self, now: float) -> None:
        used = {key for pod in self._pods.values() for key, _ in keys_of(pod)} & self._claims.keys()
        holders: dict[tuple[str, str, str], Key] = {}
        for key in sorted(used):
            for device in devices_of(self._claims[key]):
                if holders.setdefault(device, key) != key:
                    names = "/".join(key), "/".join(holders[device])
                    self._say(*names, f"device {device[2]} of {device[1]} is prepared for {names[0]} and {names[1]}")
        idle = [uid_of(claim) for key, claim in self._claims.items() if key not in used and devices_of(claim)]
        self._idle_since = {uid: self._idle_since.get(uid, now) for uid in idle}

    def _say(self, *what: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            self.violated(what[-1])

    def silent(self, now: float, *, quiet_since: float, left_out: Iterable[str] = ()) -> None:
        """Judge what is left at the end; `left_out` are uids of pods that are being bound."""
        for claim in self._claims.values():
            since = max(self._idle_since.get(uid_of(claim), now), quiet_since)
            users = {user["uid"] for user in _status(claim).get("reservedFor") or ()}
            if now - since > DUE and not users.intersection(left_out):
                self.violated(f"claim {named(claim)} has devices, and no pod on a node uses them")
