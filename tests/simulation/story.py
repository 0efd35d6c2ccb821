"""
What a committed change says to a reader: who is bound where, what waits and why, who leads.

One line a change, in the words of the API. Refuses to judge.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tests.simulation.oracles.change import DELETED, Change, Object, annotations_of, metadata_of, named
from tests.simulation.oracles.reading import (
    ALLOCATION,
    IDS,
    LEADER,
    asked_of,
    machine_of,
    node_name_of,
)

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ADDRESS: Final = re.compile(r"\b0x[0-9a-f]{8,}\b")
_LONGEST: Final = 400


def printable(text: str) -> str:
    """Return a text as one line without control characters and without addresses of memory."""
    text = _ADDRESS.sub("0x...", _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text)} characters)"


def told(change: Change) -> str:
    """Return what a change says."""
    obj = change.object
    what = f"{change.kind} {named(obj)}"
    if change.type == DELETED:
        return f"{what} is gone"
    describe = _KINDS.get(change.kind, _other)
    return f"{what} {describe(change.previous, obj)}"


def _other(before: Object | None, _after: Object) -> str:
    return "is new" if before is None else "has changed"


def _pod(before: Object | None, after: Object) -> str:
    news = [] if before is not None else [f"({metadata_of(after).get('uid')}) is new{_asks(after)}"]
    if node_name_of(after) and node_name_of(after) != node_name_of(before):
        news.append(f"is bound to {node_name_of(after)}{_given(after)}")
    old, new = (before or {}).get("status") or {}, after.get("status") or {}
    if before is not None and old.get("phase") != new.get("phase"):
        news.append(f"is {new.get('phase')}")
    if new.get("nominatedNodeName") != old.get("nominatedNodeName"):
        news.append(f"is nominated to {new.get('nominatedNodeName') or 'no node'}")
    news += _waits(old, new)
    if metadata_of(after).get("deletionTimestamp") and not metadata_of(before or {}).get("deletionTimestamp"):
        news.append("is to end")
    return ", ".join(news) or "has changed"


def _asks(pod: Object) -> str:
    spec, asked = pod.get("spec") or {}, asked_of(pod)
    for_whom = f" for {spec.get('schedulerName')}"
    if asked is None:
        return for_whom
    counts = "+".join(str(piece.count) for piece in asked.pieces)
    return f"{for_whom}, asks for {counts} {asked.unit}s, priority {spec.get('priority', 0)}"


def _given(pod: Object) -> str:
    annotations = annotations_of(pod)
    parts = [f"{key} {annotations[key]}" for key in (IDS,) if key in annotations]
    try:
        ids = json.loads(annotations[ALLOCATION])["ids"]
        parts = [f"ids {','.join(map(str, ids))}"]
    except (KeyError, ValueError, TypeError, RecursionError):
        pass
    if LEADER in annotations:
        parts.append(f"by {annotations[LEADER]}")
    return f" ({', '.join(parts)})" if parts else ""


def _waits(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    was, now = _scheduled(old), _scheduled(new)
    if now is None or now.get("status") == "True" or was == now:
        return []
    return [f"waits: {now.get('reason')}: {now.get('message')}"]


def _scheduled(status: Mapping[str, Any]) -> Mapping[str, Any] | None:
    conditions = status.get("conditions") or []
    return next((condition for condition in conditions if condition.get("type") == "PodScheduled"), None)


def _node(before: Object | None, after: Object) -> str:
    news = [] if before is not None else [f"({metadata_of(after).get('uid')}) is new"]
    machine, old = machine_of(after), machine_of(before)
    if before is None or machine != old:
        news.append("offers no Neuron" if machine is None else f"is {machine.instance_type}, {machine.devices} devices")
    spec, was = after.get("spec") or {}, (before or {}).get("spec") or {}
    if bool(spec.get("unschedulable")) != bool(was.get("unschedulable")):
        news.append("is cordoned" if spec.get("unschedulable") else "is uncordoned")
    if spec.get("taints") != was.get("taints"):
        taints = (f"{taint.get('key')}:{taint.get('effect')}" for taint in spec.get("taints") or [])
        news.append(f"has taints {', '.join(taints) or 'no more'}")
    return ", ".join(news) or "has changed"


def _lease(before: Object | None, after: Object) -> str:
    old, new = ((obj or {}).get("spec") or {} for obj in (before, after))
    if before is not None and old.get("holderIdentity") == new.get("holderIdentity"):
        return f"is renewed by {new.get('holderIdentity') or 'nobody'} at {new.get('renewTime')}"
    return f"is held by {new.get('holderIdentity') or 'nobody'}"


def _event(_before: Object | None, after: Object) -> str:
    about = (after.get("involvedObject") or after.get("regarding") or {}).get("name")
    count = (after.get("series") or {}).get("count", 1)
    return f"about {about}: {after.get('reason')} x{count}: {after.get('message') or after.get('note')}"


_KINDS: Final = {"Pod": _pod, "Node": _node, "Lease": _lease, "Event": _event}
