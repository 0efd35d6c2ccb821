"""
Waiting pods in lines: pods of one line are alike to every filter, so one refusal answers for all of them.

Lines are in the order in which machines are packed: large requests first, because what is left beside them still serves
small ones. Does not decide anything.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.affinity_terms import TermKind
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.queue.signature import Signature, signature_of

PODS_A_STEP: Final = 50
_NO_PLUGINS: Final[frozenset[str]] = frozenset()
_CORES_PER_DEVICE: Final = 2
"""For the order of requests in cores among those in devices only: the least that a machine has for each device."""


@attrs.define(eq=False)
class Line:
    """
    Pods that the filters cannot tell apart, the most urgent first.

    Attributes:
        key: what they have in common.
        request: for Neuron.
        profile: decides them.
        pods: those without a place; taken from the left.
    """

    key: Signature
    request: NeuronRequest
    profile: Profile
    pods: deque[Pod] = attrs.field(factory=deque)

    @property
    def size(self) -> int:
        """The size of the request, to be compared with others; twice the devices, or the cores."""
        return self.request.total * (_CORES_PER_DEVICE if self.request.unit is Unit.DEVICE else 1)


def lines_of(
    cluster: Cluster, pods: Iterable[Pod], profile_of: Callable[[Pod], Profile]
) -> Generator[None, None, list[Line]]:
    """Put pods with Neuron, given in the order of their urgency, into lines; large requests first."""
    lines: dict[Signature, Line] = {}
    apart = cluster.view.has_terms(TermKind.ANTI_AFFINITY)
    for position, pod in enumerate(pods, start=1):
        if pod.neuron is not None:
            key = key_of(pod, profile_of(pod), apart=apart)
            if key not in lines:
                lines[key] = Line(key, pod.neuron, profile_of(pod))
            lines[key].pods.append(pod)
        if position % PODS_A_STEP == 0:
            yield
    yield
    return sorted(lines.values(), key=lambda line: -line.size)  # stable: urgency decides among equals


def key_of(pod: Pod, profile: Profile, *, apart: bool) -> Signature:
    """
    Return what decides whether nodes take a pod, preferences included: some autoscalers take them for requirements.

    Its namespace and labels count only where a filter may read them.
    """
    constraints = pod.constraints
    looks_further = apart or counts_pods(pod) or constraints.volume_claims
    preferred = (constraints.preferred_terms, constraints.preferred_affinity, constraints.preferred_anti_affinity)
    return (*signature_of(pod, frozenset(profile.plugins) if looks_further else _NO_PLUGINS), preferred)


def counts_pods(pod: Pod) -> bool:
    """Return whether a filter asks about other pods for this one."""
    constraints = pod.constraints
    return bool(constraints.affinity or constraints.anti_affinity or constraints.spread)


def leave(lines: Iterable[Line], uids: Iterable[str]) -> None:
    """Take pods that have a place from their lines, wherever they stand in them."""
    placed = set(uids)
    for line in lines:
        if any(pod.uid in placed for pod in line.pods):
            remaining = [pod for pod in line.pods if pod.uid not in placed]
            line.pods.clear()
            line.pods.extend(remaining)
