"""
Make recorded decisions again, and say which ones differ now, and why.

Each decision is made in the cluster as it was then; the recorded outcome goes on, whatever the new one is. So one
difference causes no other. The same version with the same profile makes the same decisions.
"""

from collections.abc import Callable, Iterable, Iterator

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.journal.changes import Change, make
from neuron_scheduler.journal.records import At, Decided, Lost, Record, Started
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.filters import accepted, refusals_of
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, schedule_pod

ProfileOf = Callable[[Started, str], Profile | None]
"""Returns the profile for a scheduler name; the head of the file says which one was used."""


@attrs.frozen
class Outcome:
    """What a decision came to; all empty but `refusal` where no node took the pod."""

    node_name: str = ""
    ids: tuple[int, ...] = ()
    refusal: str = ""


@attrs.frozen
class Difference:
    """
    A decision that is another one now.

    Attributes:
        why: one sentence: which step decided otherwise.
    """

    at: float
    pod: Pod
    then: Outcome
    now: Outcome
    why: str


@attrs.frozen
class Replayed:
    """One recorded decision, made again; `difference` is None if it is the same."""

    decided: Decided
    difference: Difference | None = None


@attrs.frozen
class Skipped:
    """Decisions that could not be made again: so many lines are missing, or there is no such profile."""

    decisions: int = 0
    lines: int = 0
    scheduler_name: str = ""


def replay(records: Iterable[Record], profile_of: ProfileOf) -> Iterator[Replayed | Skipped]:
    """
    Make each recorded decision again.

    Raises:
        ConfigurationError: a change does not fit the cluster, so the lines are not those of one journal in order.
    """
    cluster, head, torn = Cluster(), Started(0.0, "", ()), False
    for record in records:
        match record:
            case Started():
                cluster, head, torn = Cluster(), record, False
            case Lost(lines):
                torn = True
                yield Skipped(lines=lines)
            case At():
                pass
            case Decided():
                profile = None if torn else profile_of(head, record.pod.scheduler_name)
                name = record.pod.scheduler_name
                yield Skipped(1, scheduler_name=name) if profile is None else replayed(cluster, record, profile)
            case _ if not torn:
                apply(record, cluster)


def apply(change: Change, cluster: Cluster) -> None:
    """
    Make a recorded change.

    Raises:
        ConfigurationError: it does not fit the cluster.
    """
    try:
        make(change, cluster)
    except (ValueError, LookupError) as error:
        raise ConfigurationError(
            f"the journal does not fit together: {error}; name files of one process only, each once"
        ) from error


def replayed(cluster: Cluster, decided: Decided, profile: Profile) -> Replayed:
    """Make one decision again, in the cluster as it was then."""
    pod, then = decided.pod, _then(decided)
    result = schedule_pod(cluster, pod, profile)
    now = _now(result)
    same = (then.node_name, then.ids) == (now.node_name, now.ids)
    if same and (isinstance(result, Decision) or sorted(decided.reasons) == sorted(result.counts)):
        return Replayed(decided)
    return Replayed(decided, Difference(decided.at, pod, then, now, _why(cluster, pod, profile, then, now)))


def _then(decided: Decided) -> Outcome:
    if decided.node_name:
        return Outcome(decided.node_name, decided.ids)
    return Outcome(refusal=FitError(decided.nodes, decided.reasons).text)


def _now(result: Decision | FitError) -> Outcome:
    if isinstance(result, Decision):
        return Outcome(result.node_name, result.ids)
    return Outcome(refusal=FitError(result.nodes, result.counts).text)


def _why(cluster: Cluster, pod: Pod, profile: Profile, then: Outcome, now: Outcome) -> str:
    """Say which step decided otherwise."""
    if not then.node_name:
        return f"{now.node_name} takes the pod now" if now.node_name else "the nodes are refused for other reasons now"
    slot = cluster.view.slot(then.node_name)
    if slot is None:
        return f"{then.node_name} is not there"
    with cluster.without_nomination(pod.uid):
        refusals = refusals_of(cluster, slot, pod, profile)
        if refusals:
            return f"{then.node_name} is refused by {refusals[0].plugin}: {refusals[0].reason}"
        if then.node_name == now.node_name:
            return "another block of the same node is chosen now"
        other = cluster.view.slot(now.node_name)
        preference = None if other is None else _separating(cluster, pod, profile, 1 << slot, 1 << other)
    if preference is None:
        return f"{now.node_name} is older, and equal in all preferences"
    return f"{preference} prefers {now.node_name} to {then.node_name}"


def _separating(cluster: Cluster, pod: Pod, profile: Profile, node: NodeSet, other: NodeSet) -> str | None:
    """Return the first preference that keeps `other` and drops `node`; None if there is none."""
    best = accepted(cluster, pod, profile, cluster.view.live)[0] | node | other
    for preference in profile.preferences:
        best = preference.prefer(cluster.view, pod, best)
        if best & other and not best & node:
            return preference.name
    return None
