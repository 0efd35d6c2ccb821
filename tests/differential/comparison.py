"""Ask both schedulers about a world, and tell where they disagree."""

import json
from collections.abc import Iterator
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from tests.differential.deliberate import agree, as_kube_scheduler_reads
from tests.differential.judge import Judge
from tests.differential.ours import answer, cluster_of
from tests.differential.recording import Recording, compact
from tests.differential.vocabulary import Object
from tests.differential.world import Answer, World

_QUESTIONS: Final = 3  # a pod that is met before the last node or volume is known gets another chance


async def recorded(judge: Judge, number: int, world: World) -> Recording:
    """
    Return a world as the API server has it, and kube-scheduler's answers.

    An answer that is not ours is asked for again: kube-scheduler's informers for nodes, pods and volumes are apart from
    each other, so its first answer may be about a part of the world.
    """
    try:
        stored = await judge.stored(world)
        cluster = cluster_of(stored)
        cases = []
        for manifest, (asked, said) in zip(world.pending, await judge.answers(world.pending), strict=True):
            pod, theirs = asked, said
            for _ in range(1, _QUESTIONS):
                if not agree(pod, theirs, _ours(cluster, pod)):
                    pod, theirs = await judge.again(manifest)
            cases.append((pod, theirs))
    finally:
        await judge.clear()
    parts = (stored.beside, stored.nodes, stored.bound, [pod for pod, _ in cases])
    return Recording(number, World(*(tuple(map(compact, part)) for part in parts)), tuple(said for _, said in cases))


def disagreements(recording: Recording) -> Iterator[str]:
    """Yield, for each pod of which we say something else than kube-scheduler did, both and the pod."""
    cluster = cluster_of(recording.world)
    for pod, theirs in zip(recording.world.pending, recording.answers, strict=True):
        ours = _ours(cluster, pod)
        if not agree(pod, theirs, ours):
            yield _difference(pod, theirs, ours)


def _ours(cluster: Cluster, pod: Object) -> Answer:
    return answer(cluster, as_kube_scheduler_reads(pod))


def _difference(pod: Object, theirs: Answer, ours: Answer) -> str:
    lines = [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"]
    if theirs.text != ours.text:
        lines += [f"  kube-scheduler: {theirs.text}", f"  ours:           {ours.text}"]
    if theirs.feasible != ours.feasible:
        lines += [
            f"  feasible for kube-scheduler: {theirs.feasible}",
            f"  feasible for ours:           {ours.feasible}",
        ]
    return "\n".join(
        [*lines, f"  labels: {json.dumps(pod['metadata'].get('labels', {}))}", f"  {json.dumps(pod['spec'])}"]
    )
