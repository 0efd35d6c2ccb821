"""A good history has no violation; an allocation that is wrong in any way is found."""

import copy
import json
from typing import Any

import attrs
import pytest

from sandbox import fleet
from tests.simulation.oracles.change import ADDED, MODIFIED, Change, recorded
from tests.simulation.oracles.judge import Terms, judge

STARTED_AT = 1_800_000_000.0
TERMS = Terms(started_at=STARTED_AT, told_within=10.0)
HOLDER = "replica-a_1"
Object = dict[str, Any]


@attrs.define
class Story:
    """Makes changes of a cluster that has a Lease and a trn1.32xlarge, one after the other."""

    changes: list[Change] = attrs.field(factory=list)
    _objects: dict[str, Object] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        metadata = {"namespace": "kube-system", "name": "my-scheduler", "uid": "uid-lease"}
        self.put({"kind": "Lease", "metadata": metadata, "spec": {"holderIdentity": HOLDER}})
        self.put(fleet.node("trn", "trn1.32xlarge"))

    @property
    def now(self) -> float:
        return 0.002 * len(self.changes)

    def put(self, obj: Object) -> Object:
        """Create an object or replace its state, and return what was stored."""
        stored = copy.deepcopy(obj)
        name, version = stored["metadata"]["name"], len(self.changes) + 1
        previous = self._objects.get(name)
        stored["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(version)}
        self._objects[name] = stored
        kind = ADDED if previous is None else MODIFIED
        self.changes.append(
            Change(at=self.now, version=version, type=kind, object=stored, previous=previous, author=None)
        )
        return copy.deepcopy(stored)

    def bound(self, name: str, *ids: int, unit: str = "devices", **annotations: str | None) -> Object:
        """Create and bind a pod with these ids; annotations replace those of a Binding, None leaves one out."""
        resource = fleet.DEVICE if unit == "devices" else fleet.CORE
        pod = self.put(_pod(name, {resource: str(len(ids))} if ids else {}))
        pod["metadata"]["annotations"] |= self._annotations(ids, unit) | annotations
        written = {key: value for key, value in pod["metadata"]["annotations"].items() if value is not None}
        pod["metadata"]["annotations"] = written
        pod["spec"]["nodeName"] = "trn"
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
        return self.put(pod)

    def _annotations(self, ids: tuple[int, ...], unit: str) -> dict[str, str | None]:
        ours: dict[str, str | None] = {"neuron-scheduler/leader": HOLDER}
        if not ids:
            return ours
        csv = ",".join(map(str, ids))
        return ours | {
            "AWS_NEURON_IDS": csv,
            "NEURON_DEVS" if unit == "devices" else "NEURON_CORES": csv,
            "NEURON_ALLOCATED": "false",
            "NEURON_ALLOC_TIME": str(round((STARTED_AT + self.now) * 1e9)),
            "neuron-scheduler/allocation": json.dumps({"node": "trn", unit: {"main": ids}, "ids": ids}),
        }


def _pod(name: str, requests: dict[str, str]) -> Object:
    container = {"name": "main", "resources": {"requests": {"cpu": "100m", **requests}}}
    metadata = {"namespace": "default", "name": name, "annotations": {"theirs": "kept"}}
    spec = {"schedulerName": "my-scheduler", "containers": [container]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def test_a_good_history() -> None:
    """Pods that are bound, run, end and make place for others break no promise."""
    story = Story()
    first = story.bound("a", 0, 1, 2, 3)
    story.bound("b", 4, 5, 6, 7)
    story.bound("c", 16, 17, unit="cores")
    first["status"]["phase"] = "Succeeded"
    story.put(first)
    story.bound("d", 0, 1, 2, 3)
    story.bound("plain")
    assert judge(story.changes, TERMS) == []


FOUR = (0, 1, 2, 3)
ALLOCATION = "neuron-scheduler/allocation"


@pytest.mark.parametrize(
    ("ids", "annotations"),
    [
        ((1, 2, 3, 4), {}),
        ((0, 1, 2, 4), {}),
        ((3, 2, 1, 0), {}),
        ((13, 14, 15, 16), {}),
        (FOUR, {"NEURON_DEVS": "0,1,2"}),
        (FOUR, {"AWS_NEURON_IDS": "0,1,2"}),
        (FOUR, {"AWS_NEURON_IDS": None}),
        (FOUR, {"NEURON_CORES": "0,1,2,3"}),
        (FOUR, {"NEURON_ALLOCATED": "true"}),
        (FOUR, {"NEURON_ALLOC_TIME": "soon"}),
        (FOUR, {ALLOCATION: '{"node":"trn","cores":{"main":[0,1,2,3]},"ids":[0,1,2,3]}'}),
        (FOUR, {ALLOCATION: '{"node":"trn","devices":{},"ids":[0,1,2,3]}'}),
        (FOUR, {ALLOCATION: '{"node":"x","devices":{"main":[0,1,2,3]},"ids":[0,1,2,3]}'}),
        (FOUR, {ALLOCATION: "[" * 100_000}),
    ],
)
def test_an_allocation_that_is_not_legal_or_not_complete(ids: tuple[int, ...], annotations: dict[str, Any]) -> None:
    """Ids that the machine does not allow, and annotations that the device plugin would misread, are found."""
    story = Story()
    story.bound("p", *ids, **annotations)
    assert {violation.oracle for violation in judge(story.changes, TERMS)} == {"allocations"}


def test_a_recording_is_put_in_order() -> None:
    """Events of several watches come in any order, and twice; what counts are their versions."""
    story = Story()
    story.bound("a", *FOUR)
    story.bound("b", *FOUR)
    events = [(change.at, change.type, change.object) for change in story.changes]
    bookmark = (0.0, "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "99"}})
    changes = list(recorded([*reversed(events), bookmark, *events]))
    assert [(change.version, change.previous) for change in changes] == [
        (change.version, change.previous) for change in story.changes
    ]
    assert {violation.oracle for violation in judge(changes, TERMS)} == {"cores"}
