"""
What happened in a simulation, in its order: a story for people, and a digest by which two runs are compared.

Each line has the virtual time, who, and what. Texts are as they were; `printed` shortens ids as far as they stay
different from one another.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import attrs

from tests.simulation.oracles.change import DELETED, Change, Object, Violation, annotations_of, metadata_of, named
from tests.simulation.oracles.claims import devices_of
from tests.simulation.oracles.reading import (
    ALLOCATION,
    IDS,
    LEADER,
    asked_of,
    machine_of,
    node_name_of,
)

MOST_LINES: Final = 200_000
"""Later lines are in the digest only, so that a history that runs away takes no more memory."""
_UUID: Final = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_SHORTEST: Final = 4
STORE: Final = "store"


@attrs.frozen
class Line:
    """One line of the story."""

    at: float
    source: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:11.6f} {self.source:<12} {self.text}"


@attrs.define(eq=False)
class History:
    """
    The story so far.

    Attributes:
        clock: virtual seconds since the start.
        violations: what the oracles have found.
        faults: how often a fault of each kind has struck.
        changes: how many changes of objects of each kind were committed.
        requests: how many requests each replica has sent.
        on_log: called with the name of a replica and each line of its log.
        on_request: called with the name of a replica and the outcome of each of its requests.
    """

    clock: Callable[[], float]
    most_lines: int = MOST_LINES
    violations: list[Violation] = attrs.field(factory=list, init=False)
    faults: Counter[str] = attrs.field(factory=Counter, init=False)
    changes: Counter[str] = attrs.field(factory=Counter, init=False)
    requests: Counter[str] = attrs.field(factory=Counter, init=False)
    on_log: Callable[[str, str], None] = attrs.field(default=lambda _replica, _line: None, init=False)
    on_request: Callable[[str, str], None] = attrs.field(default=lambda _replica, _outcome: None, init=False)
    lines: list[Line] = attrs.field(factory=list, init=False)
    left_out: int = attrs.field(default=0, init=False)
    _hash: "hashlib._Hash" = attrs.field(factory=lambda: hashlib.sha256(), init=False)  # noqa: PLW0108 - typed

    def line(self, source: str, text: str) -> None:
        """Add a line."""
        line = Line(self.clock(), source, printable(text))
        self._hash.update(f"{line}\n".encode(errors="surrogatepass"))
        if len(self.lines) < self.most_lines:
            self.lines.append(line)
        else:
            self.left_out += 1

    def committed(self, change: Change) -> None:
        """Add what a committed change says."""
        self.changes[change.kind] += 1
        author = f" [{change.author}]" if change.author else ""
        self.line(STORE, f"v{change.version} {told(change)}{author}")

    def request(self, replica: str, method: str, path: str, outcome: str) -> None:
        """Add a request with its status, or how it ended."""
        self.requests[replica] += 1
        self.on_request(replica, outcome)
        self.line(replica, f"{method} {path} -> {outcome}")

    def struck(self, kind: str, text: str = "") -> None:
        """Count a fault that has struck, and say what it did."""
        self.faults[kind] += 1
        self.line("fault", f"{kind}: {text}" if text else kind)

    def log(self, replica: str, line: str) -> None:
        """Add a line of a replica's log."""
        self.line(replica, f"log: {line.rstrip()}")
        self.on_log(replica, line)

    def violation(self, oracle: str, text: str) -> None:
        """Add what an oracle has found."""
        self.violations.append(Violation(self.clock(), oracle, printable(text)))
        self.line("VIOLATION", f"{oracle}: {text}")

    def digest(self) -> str:
        """Return a digest of all lines, also of those that were not kept."""
        return self._hash.hexdigest()

    def printed(self) -> str:
        """Return the story: one line each, with ids as short as they can be."""
        lines = [str(line) for line in self.lines]
        if self.left_out:
            lines.append(f"... {self.left_out:,} more lines")
        short = _shortened(found for line in lines for found in _UUID.findall(line))
        return "".join(_UUID.sub(lambda match: short[match[0]], line) + "\n" for line in lines)


def _shortened(uuids: Iterable[str]) -> dict[str, str]:
    """Return for each id its shortest start that no other one has."""
    ordered = sorted(set(uuids))
    return {
        this: this[: max(_SHORTEST, _common(this, before) + 1, _common(this, after) + 1)]
        for before, this, after in _neighbours(ordered)
    }


def _neighbours(ordered: list[str]) -> Iterator[tuple[str, str, str]]:
    yield from zip(["", *ordered], ordered, [*ordered[1:], ""], strict=False)


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


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
    return f"about {about}: {after.get('reason')}: {after.get('message') or after.get('note')}"


def _claim(before: Object | None, after: Object) -> str:
    news = [] if before is not None else [f"({metadata_of(after).get('uid')}) is new"]
    if devices_of(after) != devices_of(before):
        names = sorted(f"{pool}/{name.rpartition('-')[2]}" for _, pool, name in devices_of(after))
        news.append(f"has {', '.join(names) or 'no devices'}")
    old, new = ((obj or {}).get("status") or {} for obj in (before, after))
    if old.get("reservedFor") != new.get("reservedFor"):
        users = ", ".join(user["name"] for user in new.get("reservedFor") or ())
        news.append(f"is reserved for {users or 'nobody'}")
    finalizers = metadata_of(after).get("finalizers") or []
    if finalizers != (metadata_of(before or {}).get("finalizers") or []):
        news.append(f"has finalizers {', '.join(finalizers) or 'no more'}")
    return ", ".join(news) or _other(before, after)


_KINDS: Final = {"Pod": _pod, "Node": _node, "Lease": _lease, "Event": _event, "ResourceClaim": _claim}
