"""
What the waiting pods wait for: counted for the metrics, and as a line for each pod.

A queue of 15,000 pods takes longer than one step may, so the pods are counted a few at a time. The list needs no queue
that remembers the last attempt: each pod is decided as if it were its turn, and pods that no filter can tell apart are
decided once.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.answers import Waiting, WaitingEntry
from neuron_scheduler.explain.arithmetic import unprovisioned_text
from neuron_scheduler.explain.groups import Waits, decide_in_group
from neuron_scheduler.explain.why import SCHEDULER_NAME, gates_text, summary_of, unserved_text
from neuron_scheduler.model.memo import memoise
from neuron_scheduler.model.neuron_request import NeuronRequest, Unit
from neuron_scheduler.model.pod import CLAIM_GATE, Pod
from neuron_scheduler.neuron.capability import size_of
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod
from neuron_scheduler.scheduling.cycle.signature import Signature, signature_of
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.registry import PLUGINS
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue

PODS_A_STEP: Final = 1000
MOST_DEVICES: Final = 16
MOST_CORES: Final = 128

SizeLabels = tuple[str, str]
"""Values of the labels `unit` and `size`."""
_EVERY_PLUGIN: Final = frozenset(plugin.name for plugin in PLUGINS)


@attrs.frozen
class WaitingPods:
    """
    The pending pods at one moment.

    Attributes:
        by_cause: how many pods wait for what, those without Neuron included; without those in flight.
        by_size: how many pods with Neuron wait, by cause, unit and size.
        oldest: when the first of them came that has no node yet, by unit and size; on the queue's clock. Gated pods
            do not count.
        block_sizes: in devices, of the pods that lack devices: their largest container alone.
    """

    by_cause: Counter[Cause] = attrs.field(factory=Counter)
    by_size: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    oldest: dict[SizeLabels, float] = attrs.field(factory=dict)
    block_sizes: frozenset[int] = frozenset()

    def waits(self, now: float) -> dict[SizeLabels, float]:
        return {labels: max(0.0, now - since) for labels, since in self.oldest.items()}


def waiting_pods(queue: SchedulingQueue) -> Generator[None, None, WaitingPods]:
    """Return the counts, of each pod as it is when it is looked at; yields whenever other tasks may run."""
    by_cause: Counter[Cause] = Counter()
    by_size: Counter[tuple[str, str, str]] = Counter()
    oldest: dict[SizeLabels, float] = {}
    blocks: set[int] = set()
    for position, queued in enumerate(queue.pods(), start=1):
        request, since, cause = queued.pod.neuron, queued.first_active, queue.cause_of(queued)
        counts = queued.place is not Place.IN_FLIGHT
        by_cause[cause] += counts
        if request is not None:
            labels = size_labels(request)
            by_size[cause.value, *labels] += counts
            if since is not None:
                oldest[labels] = min(since, oldest.get(labels, since))
            if counts and request.unit is Unit.DEVICE and cause in (Cause.CAPACITY, Cause.FRAGMENTATION):
                blocks.add(size_of(request).total)
        if position % PODS_A_STEP == 0:
            yield
    return WaitingPods(+by_cause, +by_size, oldest, frozenset(blocks))


@memoise(maxsize=1 << 10)
def size_labels(request: NeuronRequest) -> SizeLabels:
    """Return the labels of a request: its total in its unit; more than 8 cores are rounded up to a power of two."""
    total = request.total
    if request.unit is Unit.DEVICE:
        return request.unit.value, str(total) if total <= MOST_DEVICES else f"{MOST_DEVICES + 1}+"
    if total > MOST_CORES:
        return request.unit.value, f"{MOST_CORES + 1}+"
    return request.unit.value, str(total if total <= 8 else 1 << (total - 1).bit_length())


def waiting_list(
    cluster: Cluster, pods: Iterable[Pod], profile_of: Callable[[Pod], Profile]
) -> Generator[None, None, Waiting]:
    """Return a line for each of these pending pods, in their order; yields between them. The cluster stays as it is."""
    known: dict[tuple[str, Signature], tuple[str, str]] = {}
    grouped: dict[str, Decision | Waits] = {}
    lines = []
    for pod in pods:
        profile = profile_of(pod)
        if cluster.groups.group_to_plan(pod) is not None:
            if pod.uid not in grouped:
                grouped |= yield from decide_in_group(cluster.fork(), pod, profile)
            cause, message = _cause_and_message(grouped[pod.uid])
        elif pod.nominated_node_name:  # what is kept for it is kept from the others
            cause, message = _state_of(cluster, pod, profile)
        else:
            key = (profile.scheduler_name, signature_of(pod, _EVERY_PLUGIN))
            cause, message = known.get(key) or known.setdefault(key, _state_of(cluster, pod, profile))
        unserved = unserved_text(pod, profile)
        lines.append(WaitingEntry(summary_of(pod), SCHEDULER_NAME if unserved else cause, unserved or message))
        yield
    return Waiting(tuple(lines), total=len(lines))


def _state_of(cluster: Cluster, pod: Pod, profile: Profile) -> tuple[str, str]:
    """Return the cause and the message; both say that a pod with gates is not tried."""
    if pod.gates:
        return Cause.VOLUMES if pod.gates == (CLAIM_GATE,) else Cause.GATED, gates_text(pod)
    decision = schedule_pod(cluster, pod, profile)
    claim = unprovisioned_text(cluster.view, pod) if isinstance(decision, Decision) else ""
    return (Cause.VOLUMES, f"Waits for {claim}.") if claim else _cause_and_message(decision)


def _cause_and_message(decision: Decision | FitError | Waits) -> tuple[str, str]:
    if isinstance(decision, Waits):
        return decision.cause, decision.message
    if isinstance(decision, Decision):
        return "", f"Fits now, on {decision.node_name}."
    return decision.cause, decision.text
