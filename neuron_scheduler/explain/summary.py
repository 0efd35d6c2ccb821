"""A pod in a line: who it is, and what it asks for of Neuron. Does not say why it waits."""

from neuron_scheduler.explain.answers.explanation import PodSummary
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.neuron_shortage import asked


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
