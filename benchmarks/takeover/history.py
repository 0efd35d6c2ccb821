"""
What a watch of the pods has shown: who bound which pod to which cores, when, and what must never be seen.

Times are those at which an observer of the API server got the event, so nothing that a scheduler says about itself
counts. The cores are read from AWS's annotation alone, and compared with the enumeration of legal sets that the tests
use. Refuses to do I/O, and to know why a pod is bound.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.neuron.catalog import Machine
from tests.control_plane.objects import NEURON, NEURONCORE
from tests.support.neuron_oracle import legal

LEADER: Final = "neuron-scheduler/leader"
Object = dict[str, Any]


@attrs.frozen(kw_only=True)
class Bound:
    """
    A pod that has a node.

    Attributes:
        leader: the identity that the Binding names; empty if it names none.
        cores: the mask of its cores on that node.
        at: when the event came.
    """

    uid: str
    name: str
    node: str
    leader: str
    cores: int
    at: float


@attrs.define(eq=False)
class History:
    """
    All Bindings that were seen, and what is wrong with them.

    Attributes:
        machine_of: returns the machine of a node.
        bound: by uid.
        total: how many pods were bound.
        wrong: what must not happen, a sentence each.
    """

    machine_of: Callable[[str], Machine]
    bound: dict[str, Bound] = attrs.field(factory=dict, init=False)
    total: int = attrs.field(default=0, init=False)
    wrong: list[str] = attrs.field(factory=list, init=False)
    _held: dict[str, int] = attrs.field(factory=dict, init=False)
    _gone: set[str] = attrs.field(factory=set, init=False)

    def note(self, kind: str, pod: Object, at: float) -> None:
        """Take an event of the watch."""
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self._left(uid)
        elif "nodeName" in pod["spec"]:
            self._has_node(uid, pod, at)

    def held(self, node: str) -> int:
        """Return the mask of the cores of a node that pods have."""
        return self._held.get(node, 0)

    def by_other_than(self, leader: str) -> list[Bound]:
        """Return the pods that another identity has bound, in the order of their Bindings."""
        return sorted((pod for pod in self.bound.values() if pod.leader != leader), key=lambda pod: pod.at)

    def _has_node(self, uid: str, pod: Object, at: float) -> None:
        now = self._read(uid, pod, at)
        before = self.bound.get(uid)
        if before is None:
            self._take(pod, now)
        elif (before.node, before.cores, before.leader) != (now.node, now.cores, now.leader):
            self.wrong.append(f"{now.name} was bound twice: {before} and {now}")

    def _read(self, uid: str, pod: Object, at: float) -> Bound:
        metadata, node = pod["metadata"], pod["spec"]["nodeName"]
        annotations = metadata.get("annotations", {})
        cores = mask(pod, self.machine_of(node))
        return Bound(uid=uid, name=metadata["name"], node=node, leader=annotations.get(LEADER, ""), cores=cores, at=at)

    def _take(self, pod: Object, now: Bound) -> None:
        unit, count = asked(pod)
        taken, machine = self.held(now.node), self.machine_of(now.node)
        if now.cores & taken:
            self.wrong.append(f"{now.name} has cores of {now.node} that another pod has")
        if ids_of(pod) not in legal(machine, unit, count):
            self.wrong.append(f"{now.name} has no legal set of {count} on {now.node}: {sorted_ids(pod)}")
        self._held[now.node] = taken | now.cores
        self.bound[now.uid] = now
        self.total += 1

    def _left(self, uid: str) -> None:
        pod = self.bound.get(uid)
        if pod is None or uid in self._gone:
            return
        self._held[pod.node] &= ~pod.cores
        self._gone.add(uid)


def asked(pod: Object) -> tuple[Unit, int]:
    """Return what the only container of a pod asks for."""
    limits: Mapping[str, str] = pod["spec"]["containers"][0]["resources"]["limits"]
    if NEURON in limits:
        return Unit.DEVICE, int(limits[NEURON])
    return Unit.CORE, int(limits[NEURONCORE])


def sorted_ids(pod: Object) -> list[int]:
    """Return the ids that the device plugin would read, none without the annotation."""
    ids = pod["metadata"].get("annotations", {}).get("AWS_NEURON_IDS", "")
    return sorted(int(number) for number in ids.split(",") if number)


def ids_of(pod: Object) -> int:
    """Return the same as a mask of ids: of devices or of cores, as the pod asks for."""
    return sum(1 << number for number in sorted_ids(pod))


def mask(pod: Object, machine: Machine) -> int:
    """Return the cores of a machine that a pod has as a mask."""
    unit, _ = asked(pod)
    width = machine.cores_per_device if unit is Unit.DEVICE else 1
    return sum(((1 << width) - 1) << number * width for number in sorted_ids(pod))


def longest_gap(created: Mapping[str, float], bound: Mapping[str, float]) -> float:
    """
    Return the longest time without a Binding while a pod waited, in the unit of the arguments.

    Args:
        created: when each pod was created, by name.
        bound: when it was bound; pods that were not do not count.
    """
    order = sorted(bound, key=lambda name: bound[name])
    oldest = list(_oldest(created[name] for name in reversed(order)))[::-1]
    longest, before = 0.0, float("-inf")
    for name, waits_since in zip(order, oldest, strict=True):
        longest = max(longest, bound[name] - max(before, waits_since))
        before = bound[name]
    return longest


def _oldest(times: Iterable[float]) -> Iterable[float]:
    least = float("inf")
    for time in times:
        least = min(least, time)
        yield least
