"""
What an explanation says of the pod itself, before any node is looked at.

Does not read names for a reader: who may see them is for the caller to decide.
"""

from collections.abc import Iterator
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.explain.answers.explanation import PodSummary
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import clipped, few_names
from neuron_scheduler.neuron.annotations import numbered
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked
from neuron_scheduler.scheduling.cycle.profile import Profile


def summary_of(pod: Pod) -> PodSummary:
    """Return the summary of a pod."""
    request = pod.neuron
    return PodSummary(
        namespace=pod.namespace,
        name=pod.name,
        scheduler_name=pod.scheduler_name,
        priority=pod.priority,
        created=pod.created,
        asks=asked(request),
        resource="" if request is None else request.resource,
        count=0 if request is None else request.total,
        node_name=pod.node_name,
    )


SCHEDULING_GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"
"""kube-apiserver's message in the condition of a gated pod."""
DELETED: Final = "The pod is being deleted, so no scheduler gives it a node."


def summary(pod: Pod, node_name: str = "") -> PodSummary:
    """Return what is shown of a pod; `node_name` if it is assumed on a node."""
    return attrs.evolve(summary_of(pod), node_name=pod.node_name or node_name)


def notes_on(pod: Pod, profile: Profile) -> Iterator[str]:
    """Yield what a reader must know to read the answer about a pending pod."""
    if profile.scheduler_name not in ("", pod.scheduler_name):
        yield (
            f"The pod's schedulerName is {clipped(pod.scheduler_name)}, so another scheduler decides it. This is what"
            f" {profile.scheduler_name} would decide."
        )
    if pod.gates:
        yield f"Its scheduling gates: {few_names(pod.gates)}. The rest is what would happen without them."


def ids_in(machine: Machine | None, cores: CoreMask | None, pod: Pod) -> tuple[int, ...]:
    """Return what a pod holds of a machine, in the unit of its request; empty if that is nothing or unknown."""
    if machine is None or not cores or pod.neuron is None:
        return ()
    width = machine.cores_per_device if pod.neuron.unit is Unit.DEVICE else 1
    return tuple(number for number in range(machine.size(pod.neuron.unit)) if int(cores) >> number * width & 1)


def ids_text(ids: tuple[int, ...], pod: Pod) -> str:
    """Return ` (devices 0-3)`; empty without ids."""
    return f" ({numbered(ids, pod.neuron.unit)})" if ids and pod.neuron is not None else ""


def bound_text(pod: Pod, node_name: str, ids: str, *, assumed: bool) -> str:
    """Return where a pod is, with its ids (`ids_text`)."""
    return f"{pod.key} {'is about to be bound to' if assumed else 'is on'} {node_name}{ids}."


def unknown_text(pod_info: PodInfo) -> str:
    """Return why a pod's ids are unknown, and what follows for its node."""
    return (
        f"The ids of its Neuron are unknown: {clipped(pod_info.problem)}. Until it ends, its node gets no pod that asks"
        " for more than one device or core, but fewer than all."
    )
