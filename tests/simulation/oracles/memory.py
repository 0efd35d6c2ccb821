"""
What a replica remembers equals what can be rebuilt from what it has been told.

A cluster is rebuilt from the objects of the replica's informers, through the handlers that any process has, and its
assumptions are added; rows, pods and what they hold must be equal. Each pending pod of ours is in the queue or assumed,
and the queue has no other pod.
When nothing has happened for a while, memory also equals the API server's objects, and nothing is assumed any more.
The judge of the handlers and of the decoders themselves is elsewhere: tests of `cluster` and `kube.objects`.
"""

from collections.abc import Callable, Iterable, Iterator, Set as AbstractSet
from typing import Any

import attrs

from neuron_scheduler.capture.collection import Collection
from neuron_scheduler.cluster.cluster import CHANGED, Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.cluster.tables.claims import Claims
from neuron_scheduler.kube.objects.base import Decoded, Resource
from neuron_scheduler.kube.objects.devices import CLAIM_KINDS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.wiring import Parts
from tests.simulation.oracles.change import Object, Report, encoded

ReadTable = Callable[[Resource[Any]], Iterable[Object]]
"""Returns the objects of a kind that the API server has now."""


@attrs.define(eq=False, kw_only=True)
class Memory:
    """Compares memories, and reports what is wrong."""

    report: Report

    def sampled(self, replica: str, parts: Parts, exists: Callable[[str, str], bool]) -> None:
        """
        Compare the memory of a replica with what it has been told.

        `exists` says whether the API server still has a pod with this key and uid: the answer to a Binding, or a GET,
        may have told the replica that a pod is gone before its watch does.
        """
        if not all(informer.synced.is_set() for informer in parts.informers):
            return
        told = _collection(parts)
        for informer in parts.informers:
            for decoded in _told(informer):
                told.add(informer.resource, decoded)
        cluster = told.capture().cluster
        for fault in (
            *_assumed(parts.cluster, cluster, parts.cluster._assumed),
            *different(parts.cluster, cluster),
            *self._lost(parts, exists),
            *_queued_in_vain(parts),
        ):
            self.report("memory", f"{replica}: {fault}")

    def quiet(self, replica: str, parts: Parts, read: ReadTable, in_doubt: AbstractSet[str] = frozenset()) -> None:
        """
        Compare the memory of a replica with the API server, when everything has been told and answered.

        `in_doubt` has the uids of the pods whose Bindings stay in doubt: these, and no others, are assumed.
        """
        truth = _collection(parts)
        for informer in parts.informers:
            for obj in read(informer.resource):
                truth.add(informer.resource, informer.resource.decode(encoded(obj)))
        cluster = truth.capture().cluster
        faults = [*_assumed(parts.cluster, cluster, in_doubt), *different(parts.cluster, cluster)]
        count = len(parts.cluster._assumed - in_doubt)
        if count:
            faults.append(f"{count} pods are still assumed")
        for fault in faults:
            self.report("memory", f"{replica}, at rest: {fault}")

    def _lost(self, parts: Parts, exists: Callable[[str, str], bool]) -> Iterator[str]:
        for pod in parts.pods._store._objects.values():
            pending = not (pod.node_name or pod.terminating) and pod.scheduler_name == "my-scheduler"
            known = pod.uid in parts.queue or parts.cluster.pod_info(pod.uid) is not None
            if pending and not known and exists(pod.key, pod.uid):
                yield f"pod {pod.key} is pending, and neither in the queue nor assumed"


def _collection(parts: Parts) -> Collection:
    """Return one that reads what a replica reads, in the same order."""
    collection = Collection(taken=0.0)
    if parts.claims is not None:
        collection.cluster.claims = Claims()
        last, pods = collection._lists.popitem()
        collection._lists |= {**{kind: [] for kind in CLAIM_KINDS}, last: pods}
    return collection


def _queued_in_vain(parts: Parts) -> Iterator[str]:
    """Yield the pods in the queue that nobody has to place any more, as far as was told."""
    told = {pod.uid: pod for pod in parts.pods._store._objects.values()}
    for queued in parts.queue.pods():
        pod = told.get(queued.pod.uid)
        if pod is None or pod.node_name or pod.terminating:
            yield f"pod {queued.pod.key} is in the queue, and {_present_state(pod)}"


def _present_state(pod: Pod | None) -> str:
    return "is gone" if pod is None else f"is on {pod.node_name}" if pod.node_name else "is being deleted"


def _told(informer: Any) -> Iterator[Decoded[Any]]:
    """Yield what an informer knows; an object with a last good state and a malformed one is both."""
    store = informer._store
    for key, value in store._objects.items():
        yield Decoded(key, value.uid, "", value)
    for key, malformed in store._malformed.items():
        if key not in store._objects:
            yield Decoded(key, malformed.uid, "", malformed)


def _assumed(live: Cluster, rebuilt: Cluster, uids: Iterable[str]) -> Iterator[str]:
    """Repeat the assumptions of a cluster in one that was rebuilt; yield those that are on no node."""
    for uid in sorted(uids):
        pod_info = live.pod_info(uid)
        if pod_info is None:
            yield f"{uid} is assumed on no node"
        elif rebuilt.node(pod_info.pod.node_name) is not None:
            if pod_info.pod.claims:
                rebuilt._settle(PodInfo(pod_info.pod, cores=pod_info.cores))  # its claims may have them already
            else:
                rebuilt.put_pod(pod_info.pod)  # its annotations say what it holds, also on what is another machine now


def different(live: Cluster, rebuilt: Cluster) -> Iterator[str]:
    """
    Yield how two clusters differ in their nodes, pods, and what these hold.

    Nominations are a replica's own, and so is what it knows of pods that cannot be evicted.
    """
    for pod_info in [pod_info for row in _every_row(live) for pod_info in row.pod_infos.values()]:
        if not pod_info.is_evictable:
            rebuilt.set_evictable(pod_info.pod.uid, is_evictable=False)
    one, other = ({row.node.name: row for row in _every_row(cluster)} for cluster in (live, rebuilt))
    if one.keys() != other.keys():
        yield f"it knows nodes {sorted(one.keys() - other.keys())} too, and not {sorted(other.keys() - one.keys())}"
    rows = [fault for name in sorted(one.keys() & other.keys()) for fault in _rows(one[name], other[name])]
    yield from rows
    placed = {uid for uid in live._where if live._where[uid] in one or uid not in live._assumed}
    rebuilt_placed = {*rebuilt._where}
    if not rows and placed != rebuilt_placed:
        more, fewer = placed - rebuilt_placed, rebuilt_placed - placed
        yield f"it has pods {sorted(more)} on nodes too, and not {sorted(fewer)}"


def _every_row(cluster: Cluster) -> list[NodeInfo]:
    return list(cluster.view.rows())


def _rows(row: NodeInfo, other: NodeInfo) -> Iterator[str]:
    if any(pod_info.problem == CHANGED for pod_info in row.pod_infos.values()):
        return  # the first allocation was kept, and only the last is known here
    mine, theirs = _holdings(row), _holdings(other)
    if mine != theirs:
        both = sorted(mine.keys() | theirs.keys())
        wrong = [f"{mine.get(pod)} of {pod}, not {theirs.get(pod)}" for pod in both if mine.get(pod) != theirs.get(pod)]
        yield f"{row.node.name} has {'; '.join(wrong)}"
    elif _own(row) != _own(other):
        wrong = [
            f"{field.name}: {getattr(row, field.name)} and not {getattr(other, field.name)}"
            for field in attrs.fields(NodeInfo)
            if field.eq and getattr(_own(row), field.name) != getattr(_own(other), field.name)
        ]
        yield f"the row of {row.node.name} differs: {'; '.join(wrong)}"


def _own(row: NodeInfo) -> NodeInfo:
    """Return a row without what the replica has decided itself."""
    return attrs.evolve(row, nominations=(), set_aside=None)


def _holdings(row: NodeInfo) -> dict[str, str]:
    return {
        pod_info.pod.key + (" (unreadable)" if pod_info.unreadable else ""): (
            "unknown cores" if pod_info.cores is None else f"cores {int(pod_info.cores):#x}"
        )
        for pod_info in row.pod_infos.values()
    }
