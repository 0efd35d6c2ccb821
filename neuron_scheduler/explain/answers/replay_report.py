"""The answer to "would these decisions be the same today, or with another profile?", as values."""

import attrs

from neuron_scheduler.explain.answers.explanation import PodSummary


@attrs.frozen
class DifferentDecision:
    """
    A decision that is another one now.

    Attributes:
        at: when it was made, seconds since the epoch.
        then, now: a node with ids, or the message of the refusal.
        why: which step decided otherwise.
    """

    at: float
    pod: PodSummary
    then: str
    now: str
    why: str


@attrs.frozen
class Waits:
    """
    How the pods of a journal fare in a simulation.

    Attributes:
        pods: how many there are.
        waited: those that no node took when they came.
        never: those of them that got no node before the journal ended.
        seconds: that all pods together waited.
        longest: that one pod waited.
    """

    pods: int
    waited: int
    never: int
    seconds: float
    longest: float


@attrs.frozen
class ReplayReport:
    """
    What came of a replay.

    Attributes:
        first, last: times of the first and the last decision, seconds since the epoch; 0 without any.
        decisions: how many were made again.
        different: how many of them are others now.
        differences: the first of those.
        recorded: the pods in a simulation with the recorded profiles; None if none was asked for.
        other: the same with the given profiles.
        notes: what was left out, one sentence each.
    """

    first: float
    last: float
    decisions: int
    different: int
    differences: tuple[DifferentDecision, ...] = ()
    recorded: Waits | None = None
    other: Waits | None = None
    notes: tuple[str, ...] = ()
