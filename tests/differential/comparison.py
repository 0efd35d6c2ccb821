"""Ask both schedulers about a world, and report where they disagree."""

import json
from collections.abc import Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from tests.control_plane.binaries import RELEASE
from tests.differential.deliberate import agree
from tests.differential.judge import Judge
from tests.differential.ours import answer, cluster_of, refusal
from tests.differential.recording import Recording, compact
from tests.differential.releases import bound_as_counted, pending_as_read
from tests.differential.vocabulary import Object
from tests.differential.world import Answer, World

_FEW: Final = 3  # objects of a kind that are shown: those of a minimised world
_QUESTIONS: Final = 3  # kube-scheduler may see a pod before the last node or volume


async def recorded(judge: Judge, name: str, world: World) -> Recording:
    """
    Return a world as the API server has it, and kube-scheduler's answers.

    If an answer differs from ours, kube-scheduler is asked again: it has separate informers for nodes, pods and
    volumes, so its first answer may be about a part of the world.
    """
    try:
        stored = await judge.stored(world)
        cluster = _cluster_of(stored, RELEASE)
        cases = []
        for manifest, (asked, first) in zip(world.pending, await judge.answers(world.pending), strict=True):
            pod, theirs = asked, first
            for _ in range(1, _QUESTIONS):
                if not agree(world, pod, theirs, _ours(cluster, pod, RELEASE)):
                    pod, theirs = await judge.again(manifest)
            cases.append((pod, theirs))
    finally:
        await judge.clear()
    parts = (stored.beside, stored.nodes, stored.bound, stored.nominated, [pod for pod, _ in cases])
    compacted = World(*(tuple(map(compact, part)) for part in parts))
    return Recording(name, compacted, tuple(theirs for _, theirs in cases), RELEASE)


def disagreements(recording: Recording) -> Iterator[str]:
    """Yield each pod with an answer other than kube-scheduler's, with both answers and the nodes that differ."""
    cluster = _cluster_of(recording.world, recording.release)
    for pod, theirs in zip(recording.world.pending, recording.answers, strict=True):
        ours = _ours(cluster, pod, recording.release)
        if not agree(recording.world, pod, theirs, ours):
            yield "\n".join(_difference(recording.world, pod, theirs, ours))


def _cluster_of(world: World, release: str) -> Cluster:
    bound = tuple(bound_as_counted(pod, release) for pod in world.bound)
    return cluster_of(attrs.evolve(world, bound=bound))


def _ours(cluster: Cluster, pod: Object, release: str) -> Answer:
    return answer(cluster, pending_as_read(pod, release))


def _difference(world: World, pod: Object, theirs: Answer, ours: Answer) -> Iterator[str]:
    metadata = pod["metadata"]
    yield f"{metadata['namespace']}/{metadata['name']}:"
    yield f"  kube-scheduler says: {theirs.text}"
    yield f"  we say:              {ours.text}"
    for node in world.nodes:
        name = node["metadata"]["name"]
        if name in theirs.feasible and name not in ours.feasible:
            yield f"  only kube-scheduler would take {name}; we: {refusal(cluster_of(world), pod, name)}"
        elif name in ours.feasible and name not in theirs.feasible:
            yield f"  only we would take {name}"
    by_kind = {"pod": (pod,), "node": world.nodes, "bound": world.bound, "nominated": world.nominated}
    for kind, objects in by_kind.items():
        if len(objects) <= _FEW:
            yield from (f"  {kind} {manifest['metadata']['name']}: {_json(manifest)}" for manifest in objects)


def _json(manifest: Object) -> str:
    parts = {part: manifest.get(part) for part in ("spec", "status") if manifest.get(part)}
    return json.dumps({"labels": manifest["metadata"].get("labels", {}), **parts})
