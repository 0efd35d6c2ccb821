"""
PodTopologySpread: hard constraints are not served yet, so pods that carry them are refused rather than placed
wrongly.

Soft ones (`ScheduleAnyway`) are ignored; the scheduler counts the pods concerned.
"""

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.framework import PodRefusal

NAME = "PodTopologySpread"
REASON = "topology spread constraints with whenUnsatisfiable: DoNotSchedule are not supported yet"


def pre_filter(_: Cluster, pod: Pod) -> PodRefusal | None:
    """Refuse pods with a hard spread constraint."""
    return PodRefusal(NAME, REASON, hopeless=True) if pod.constraints.hard_spread else None
