"""Hand-made histories for the tests of the oracles: nodes, pods, Bindings, a Lease, and the changes that they make."""

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from sandbox import fleet
from tests.simulation.oracles.change import ADDED, DELETED, MODIFIED, Change

STARTED_AT = 1_800_000_000.0
HOLDER = "replica-a_1"


@attrs.define
class Story:
    """
    Makes changes, one after the other.

    Attributes:
        now: seconds.
        changes: all that were made.
    """

    now: float = 0.0
    changes: list[Change] = attrs.field(factory=list)
    _objects: dict[tuple[str, str], dict[str, Any]] = attrs.field(factory=dict)

    def put(self, obj: Mapping[str, Any], *, author: str | None = None) -> dict[str, Any]:
        """Create an object or replace its state, and return what was stored."""
        stored = copy.deepcopy(dict(obj))
        place = stored["kind"], stored["metadata"]["name"]
        previous = self._objects.get(place)
        stored["metadata"].setdefault("uid", f"uid-{place[1]}")
        stored["metadata"]["resourceVersion"] = str(len(self.changes) + 1)
        self._objects[place] = stored
        self._change(ADDED if previous is None else MODIFIED, stored, previous, author)
        return copy.deepcopy(stored)

    def remove(self, obj: Mapping[str, Any], *, author: str | None = None) -> None:
        """Remove an object."""
        previous = self._objects.pop((obj["kind"], obj["metadata"]["name"]))
        self._change(DELETED, previous, previous, author)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def lease(self, holder: str = HOLDER) -> dict[str, Any]:
        """Let a replica hold the Lease."""
        return self.put(lease(holder))

    def bind(self, pod: Mapping[str, Any], node: str, *ids: int, **fields: Any) -> dict[str, Any]:
        """Bind a pod with one container as this scheduler does; the fields are those of `bound`."""
        self.wait(0.001)
        time = round((STARTED_AT + self.now) * 1e9)
        return self.put(bound(pod, node, ids, **{"time": time, **fields}))

    def _change(self, kind: str, obj: dict[str, Any], previous: dict[str, Any] | None, author: str | None) -> None:
        self.wait(0.001)
        version = len(self.changes) + 1
        self.changes.append(
            Change(at=self.now, version=version, type=kind, object=obj, previous=previous, author=author)
        )


def node(name: str = "trn", instance_type: str = "trn1.32xlarge", **spec: Any) -> dict[str, Any]:
    """Return a node."""
    made = fleet.node(name, instance_type)
    made["spec"] |= spec
    return made


def pod(name: str, devices: int = 1, *, resource: str = fleet.DEVICE, **fields: Any) -> dict[str, Any]:
    """Return a pending pod with one container (without Neuron if `devices` is 0); the fields are those of its spec."""
    requests = {"cpu": "100m"} | ({resource: str(devices)} if devices else {})
    spec = {"schedulerName": "my-scheduler", "containers": [{"name": "main", "resources": {"requests": requests}}]}
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}", "annotations": {"theirs": "kept"}}
    return {"kind": "Pod", "metadata": metadata, "spec": spec | fields, "status": {"phase": "Pending"}}


def bound(
    pod: Mapping[str, Any],
    node: str,
    ids: Sequence[int] = (),
    *,
    time: int = 1_800_000_000_000_000_000,
    sender: str = HOLDER,
    unit: str = "devices",
    **annotations: str | None,
) -> dict[str, Any]:
    """Return a pod as our Binding leaves it; annotations by keyword replace ours, None leaves one out."""
    after = copy.deepcopy(dict(pod))
    csv = ",".join(map(str, ids))
    ours: dict[str, str | None] = {"neuron-scheduler/leader": sender}
    if ids:
        ours |= {
            "AWS_NEURON_IDS": csv,
            "NEURON_DEVS" if unit == "devices" else "NEURON_CORES": csv,
            "NEURON_ALLOCATED": "false",
            "NEURON_ALLOC_TIME": str(time),
            "neuron-scheduler/allocation": json.dumps({"node": node, unit: {"main": list(ids)}, "ids": list(ids)}),
        }
    written = {key: value for key, value in (ours | annotations).items() if value is not None}
    after["metadata"]["annotations"] = (after["metadata"].get("annotations") or {}) | written
    after["spec"]["nodeName"] = node
    after["status"]["conditions"] = [
        *(c for c in after["status"].get("conditions") or [] if c["type"] != "PodScheduled"),
        {"type": "PodScheduled", "status": "True"},
    ]
    return after


def lease(holder: str) -> dict[str, Any]:
    """Return the Lease with a holder."""
    metadata = {"namespace": "kube-system", "name": "my-scheduler", "uid": "uid-lease"}
    return {"kind": "Lease", "metadata": metadata, "spec": {"holderIdentity": holder}}


def with_status(pod: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a pod with other fields in its status."""
    after = copy.deepcopy(dict(pod))
    after["status"] |= fields
    return after


def with_annotations(obj: Mapping[str, Any], **annotations: str | None) -> dict[str, Any]:
    """Return an object with other annotations; None removes one."""
    after = copy.deepcopy(dict(obj))
    merged = (after["metadata"].get("annotations") or {}) | annotations
    after["metadata"]["annotations"] = {key: value for key, value in merged.items() if value is not None}
    return after
