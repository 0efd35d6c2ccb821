"""
The answers to "what waits?" and "what was decided lately?", as values: a line for each pod.

The endpoints `/v1/waiting` and `/v1/decisions` and the page show these values. Who asks for one pod's reasons in full
gets an `Explanation`.
"""

import attrs

from neuron_scheduler.explain.answers.explanation import PodSummary


@attrs.frozen
class WaitingPod:
    """
    A pod that has no node.

    Attributes:
        pod: its namespace and name are empty where the reader may not see names.
        cause: as in `neuron_scheduler_pods_waiting`.
        message: the text of the Event and the condition; empty if it has not been tried yet.
    """

    pod: PodSummary
    cause: str = ""
    message: str = ""


@attrs.frozen
class Waiting:
    """
    The pods that wait.

    Attributes:
        pods: the longest wait first, at most as many as the endpoint says.
        total: how many wait in all.
        notes: what the reader has to know, such as names that are left out: one sentence each.
    """

    pods: tuple[WaitingPod, ...]
    total: int = 0
    notes: tuple[str, ...] = ()


@attrs.frozen
class RecentDecision:
    """
    What was decided about a pod.

    Attributes:
        at: seconds since the epoch.
        pod: its namespace and name are empty where the reader may not see names.
        node_name: its node; empty if it was refused.
        ids: devices or cores that it gets.
        cause: of a refusal, as in `neuron_scheduler_pods_waiting`.
        message: the text of the Event.
    """

    at: float
    pod: PodSummary
    node_name: str = ""
    ids: tuple[int, ...] = ()
    cause: str = ""
    message: str = ""


@attrs.frozen
class RecentDecisions:
    """What this process has decided lately, the newest first, bounded."""

    decisions: tuple[RecentDecision, ...]
    notes: tuple[str, ...] = ()
