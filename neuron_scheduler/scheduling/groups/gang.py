"""
A group at one moment: its members that wait for a node, and those that have one.

Members that are being deleted are none: a restarted job has the name of the one before, whose pods may still be ending.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.pod_group import COUNT_LABEL, UNKNOWN, GroupKey, PodGroup
from neuron_scheduler.model.wording import count_text, few_names, list_of
from neuron_scheduler.scheduling.cycle.schedule_pod import FitError
from neuron_scheduler.scheduling.cycle.trial import AssumedPod, ChangedError
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.plugins.registry import GROUP_TOPOLOGY, names_for

MOST_TERM_SETS: Final = 16
"""A job has a template or a few; the loop is busy with one group for as long as its terms are compared."""
_NOT_COUNTED: Final = "Pods that have ended, or have scheduling gates, do not count."
_LATE: Final = ("training.kubeflow.org/job-role", "worker")


@attrs.frozen
class Gang:
    """
    The members of a group that can be placed now.

    Attributes:
        group: what its members say together.
        waiting: those with a nomination first, then the largest, then by rank.
        placed: names of nodes by the uids of the members that are bound or assumed.
        unconstrained: uids of members to which the group's domain does not matter, such as a launcher's, or one's for
            which space is kept if that domain is only a preference.
        title: its name in messages.
    """

    group: PodGroup
    waiting: tuple[Pod, ...]
    placed: Mapping[str, str]
    unconstrained: frozenset[str] = frozenset()
    title: str = ""

    @property
    def missing_count(self) -> int:
        """How many of the waiting members must be placed, or none is."""
        if not self.group.least:
            return len(self.waiting)
        return min(max(self.group.least - len(self.placed), 0), len(self.waiting))

    @property
    def still_to_come(self) -> int:
        """How many members will come that do not exist yet, as far as it is known."""
        return max(self.group.size - len(self.placed) - len(self.waiting), 0)


def gang_of(cluster: Cluster, waiting: Sequence[Pod]) -> Gang:
    """
    Return the group of some pods; the first is the most urgent.

    Raises:
        ChangedError: they are not all of one group any more, or there are none.
    """
    said = waiting[0].group if waiting else None
    uids = {pod.uid for pod in waiting}
    if said is None or not uids <= cluster.groups.members(said.key).keys():
        raise ChangedError
    key = said.key
    group, members = cluster.groups.group(key), cluster.groups.members(key)
    kept = cluster.nominees_among(members.keys())
    elsewhere = cluster.groups.members_elsewhere(key)
    if not group.topology:  # a domain is a preference of those that ask for Neuron
        elsewhere = frozenset([uid for uid, pod in members.items() if pod.neuron is None or uid in kept])
    ordered = sorted(waiting, key=attrgetter("rank", "created"))
    ordered.sort(key=neuron_total_of, reverse=True)
    if kept:
        ordered.sort(key=lambda pod: pod.uid not in kept)
    others = [uid for uid in members if uid not in uids]
    placed = {uid: name for uid in others if (name := cluster.node_of(uid)) is not None}
    return Gang(group, tuple(ordered), placed, elsewhere, cluster.groups.title(key))


def neuron_total_of(pod: Pod) -> int:
    """Return how much Neuron a pod asks for, in units of its own; 0 without Neuron."""
    return 0 if pod.neuron is None else pod.neuron.total


@attrs.frozen
class GroupPlan:
    """
    Members that are assumed, enough of them; the others wait.

    Attributes:
        left_out: members beyond the count that found no place, each with the reason.
    """

    members: tuple[AssumedPod, ...]
    left_out: tuple[tuple[Pod, FitError], ...] = ()


@attrs.frozen
class GroupRefusal:
    """
    Too few members fit at once, and nothing is assumed.

    Attributes:
        fitting: how many of the waiting members fit at once.
        reason: why the next one does not, with the others placed, or what keeps the group itself from any node.
        member: the name of the next one; empty if all are alike.
    """

    fitting: int
    reason: FitError
    member: str = ""

    def plugins_for(self, pod: Pod) -> frozenset[str]:
        """
        Return the names of the plugins whose answer about a waiting member has to change; none if any event may help.

        Otherwise only an event may help after which the node that it happened on takes some member by itself.
        """
        return frozenset() if self.reason.pod_reason else names_for(pod) | self.reason.plugins

    def fit_error(self, gang: Gang) -> FitError:
        if self.reason.pod_reason and GROUP_TOPOLOGY in self.reason.plugins:
            return self.reason
        name, placed, missing = f"Group {gang.title}", len(gang.placed), gang.missing_count
        fit = f"{self.fitting} {'fits' if self.fitting == 1 else 'fit'}"
        if placed:
            sentence = (
                f"{name}: {placed} of {placed + missing} members have a node. The others need room at once; {fit}."
            )
        else:
            sentence = f"{name} needs room for {count_text(missing, 'pod')} at once; {fit}."
        rest = "With these placed, for the next one" if self.fitting else "For the next one"
        member = f", {self.member}" if self.member else ""
        return attrs.evolve(self.reason, group=f"{sentence} {rest}{member}:")


def complaint_about(cluster: Cluster, gang: Gang) -> FitError | None:
    """Return what is wrong with a group itself, for its owner; None if nothing is."""
    priorities = [str(priority) for priority in sorted({pod.priority for pod in gang.waiting})]
    sentence, name, topology = "", f"group {gang.group.key}", gang.group.topology
    if len(priorities) > 1:
        sentence = f"members of {name} have different priorities ({list_of(priorities)}): give them the same"
    is_nowhere = bool(topology) and not cluster.view.domains(topology).keyed
    if is_nowhere:
        sentence = f"{name} must share one value of the label {topology}, but no node has that label"
    if _has_many_terms(gang.waiting):
        sentence = (
            f"members of {name} have more than {MOST_TERM_SETS} different sets of affinity terms and spread"
            " constraints: give them the same"
        )
    if not sentence:
        return None
    return FitError(
        cluster.view.node_count,
        plugins=frozenset({GROUP_TOPOLOGY}),
        pod_reason=sentence,
        new_node_cannot_help=not is_nowhere,
        cause=Cause.POD,
    )


def _has_many_terms(pods: Iterable[Pod]) -> bool:
    """Return whether the members ask too many different things about other pods: each is compared with all pods."""
    sets = set[Hashable]()
    for constraints in {id(pod.constraints): pod.constraints for pod in pods}.values():
        if constraints.comparisons:
            sets.add((constraints.terms_about_pods, constraints.spread))
        if len(sets) > MOST_TERM_SETS:
            return True
    return False


def held_text(groups: Groups, key: GroupKey) -> str:
    group, members, foreign = groups.group(key), groups.members(key), groups.foreign_members(key)
    if group.least == UNKNOWN:
        doubt = "does not exist, or its count cannot be read"
        return f"PodGroup {group.key} {doubt}; create or correct it. Its pods stay Pending."
    exist = f"{groups.present_count(key)} of {group.least} members exist. It starts when all {group.least} do."
    text = f"Waiting for group {groups.title(key)}: {exist} {_NOT_COUNTED}"
    if foreign:
        have = "has" if foreign.total() == 1 else "have"
        text += (
            f" {foreign.total()} more {have} the schedulerName {few_names(sorted(foreign))}: no member without a node."
        )
    label, worker = _LATE
    if len(members) == group.least - 1 and all(member.labels.get(label) == worker for member in members.values()):
        text += (
            " If the launcher is created after its workers (WaitForWorkersReady), do not count it: set"
            f" the label {COUNT_LABEL} to {len(members)}."
        )
    return text
