"""
What waits, and for what: a line for each pod, without a queue that remembers the last attempt.

Each pod is decided as if it were its turn. Pods that no filter can tell apart are decided once: replicas of a workload
are many. Does not place one of them before the next: each line is true of the cluster as it is.
"""

from collections.abc import Callable, Iterable
from typing import Final

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers.lists import Waiting, WaitingPod
from neuron_scheduler.explain.summary import summary_of
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, schedule_pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.registry import PLUGINS
from neuron_scheduler.scheduling.queue.signature import Signature, signature_of

_EVERY_PLUGIN: Final = frozenset(plugin.name for plugin in PLUGINS)


def waiting_list(cluster: Cluster, pods: Iterable[Pod], profile_of: Callable[[Pod], Profile]) -> Waiting:
    """
    Return a line for each pending pod, in their order.

    Args:
        cluster: it is not changed.
        pods: without a node.
        profile_of: the profile by which a pod is decided.
    """
    known: dict[tuple[str, Signature], tuple[str, str]] = {}
    lines = []
    for pod in pods:
        profile = profile_of(pod)
        if pod.nominated_node_name:  # what is kept for it is kept from the others
            cause, message = _state(cluster, pod, profile)
        else:
            key = (profile.scheduler_name, signature_of(pod, _EVERY_PLUGIN))
            cause, message = known.get(key) or known.setdefault(key, _state(cluster, pod, profile))
        lines.append(WaitingPod(summary_of(pod), cause, message))
    return Waiting(tuple(lines), total=len(lines))


def _state(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[str, str]:
    """Return the cause and the message; both say that a pod with gates is not tried."""
    if pod.gates:
        return Cause.GATED, f"Scheduling is blocked by gates: {', '.join(pod.gates)}."
    decision = schedule_pod(cluster, pod, profile)
    if isinstance(decision, Decision):
        return "", f"Fits now, on {decision.node_name}."
    return decision.cause, decision.text
