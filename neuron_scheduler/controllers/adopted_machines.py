"""
What a placeholder that is already there asks for: the next leader goes on with the requests of the last one.

Only what decides is read back from the pod: its types, zones and amounts. Which pods it is for, the next plan says.
"""

import attrs

from neuron_scheduler.capacity.limits import Owner
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.kube.writes.machine_order import FOR_NAMESPACE, MARKER, NAMESPACE, REQUESTED_BY
from neuron_scheduler.kube.writes.placeholder_pod import SCHEDULER_NAME
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.model.selectors import Operator
from neuron_scheduler.telemetry import logs

log = logs.logger(__name__)


@attrs.frozen
class AdoptedMachine:
    """A machine that an earlier leader has asked for, and whose limits it counts for."""

    owner: Owner
    need: MachineNeed


def is_placeholder(pod: Pod) -> bool:
    """Return whether a pod asks for a machine."""
    return pod.namespace == NAMESPACE and pod.scheduler_name == SCHEDULER_NAME and pod.labels.get(MARKER) == "true"


def requested_by(pod: Pod) -> str:
    """Return for the pods of which scheduler name a placeholder asks."""
    return pod.labels.get(REQUESTED_BY, "")


def is_seen_by_autoscalers(pod: Pod) -> bool:
    """Return whether a placeholder asks: it is complete, not about to go, and nobody has bound it."""
    return pod.scheduled is not None and not pod.terminating and not pod.node_name


def warn_of_foreign(placeholder: Pod) -> None:
    """Warn of a placeholder that perhaps nobody looks after."""
    log.warning(
        "A placeholder is left alone: no profile has its scheduler name",
        pod=placeholder.key,
        schedulerName=requested_by(placeholder),
        hint="delete it, unless another installation serves this name",
    )


def adopted_machine(pod: Pod) -> AdoptedMachine | None:
    """Return what a placeholder asks for; None if it asks for no machine that could be recognised."""
    silicon = {name: pod.requests[name] for name in NEURON_NAMES if pod.requests.get(name)}
    types = _values(pod, INSTANCE_TYPE_LABEL)
    if not (silicon and types):
        return None
    need = MachineNeed(
        instance_types=types,
        silicon=silicon,
        host={name: amount for name, amount in pod.requests.items() if name not in NEURON_NAMES},
        zones=_values(pod, ZONE_LABEL),
        pods=(pod,),
    )
    return AdoptedMachine(Owner(requested_by(pod), pod.labels.get(FOR_NAMESPACE, "")), need)


def _values(pod: Pod, key: str) -> tuple[str, ...]:
    """Return the values of a label that the placeholder requires; its own requirements come last in each term."""
    for term in pod.constraints.required_terms or ():
        for requirement in reversed(term.expressions):
            if (requirement.key, requirement.operator) == (key, Operator.IN):
                return requirement.values
    return ()
