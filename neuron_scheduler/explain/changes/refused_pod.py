"""
What every search for a change starts from, and the trials that prove a change.

A trial asks the filters of the decision itself. What a trial changes in the cluster is one row, for the time of one
question, so a search runs on a fork or on a live cluster that changes whenever the search pauses: it keeps names across
a pause, and proves a change in the step that yields it. A fork for each trial would cost more than the trial: it would
have to build its indexes again. Does not judge by anything but the filters.
"""

import re
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers import Change
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.wording import clipped, few
from neuron_scheduler.scheduling.cycle.filters import fitting
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, decide_on, select_node
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance


@attrs.frozen
class Note:
    """A sentence about what was not tried or is not offered, and why."""

    text: str


Found = Change | Note | None
T = TypeVar("T")


@attrs.frozen(eq=False)
class RefusedPod:
    """
    A refused pod in its cluster.

    Attributes:
        error: why no node takes it.
        disruption_allowance: what the budgets of the other pods allow.
    """

    cluster: Cluster
    pod: Pod
    profile: Profile
    error: FitError
    disruption_allowance: DisruptionAllowance

    def warmed_up(self, pod: Pod) -> Iterator[None]:
        """Build the indexes that the decision about another form of the pod needs; yields when others may run."""
        return IndexWarmup().of(self.cluster, pod, self.profile)

    def refusal_warmed_up(self) -> Iterator[None]:
        """Build the indexes that the reasons of the nodes need, likewise."""
        return IndexWarmup().of_refusal(self.cluster, self.pod, self.profile)

    def decision(self, pod: Pod) -> Decision | None:
        """Return the decision about another form of the pod; None if no node takes it."""
        result = select_node(self.cluster, pod, self.profile)
        return result if isinstance(result, Decision) else None

    def decision_on(self, name: str) -> Decision | None:
        """Return the decision about the pod if only this node is asked; None if it does not take the pod."""
        result = decide_on(self.cluster, self.pod, self.profile, name)
        return result if isinstance(result, Decision) else None

    def decision_with(self, node_info: NodeInfo) -> Decision | None:
        """Return the decision about the pod on a node that exists, if its row were this one."""
        slot = self.cluster.view.slot(node_info.node.name)
        if slot is None:
            return None
        with self.cluster.row_replaced(slot, node_info):
            return self.decision_on(node_info.node.name)

    def fitting(self, pod: Pod, among: NodeSet) -> NodeSet:
        """Return those of the nodes that take another form of the pod; valid in this step."""
        with self.cluster.without_nomination(self.pod.uid):
            return fitting(self.cluster, pod, self.profile.plan(pod), among)

    def first_fitting(
        self, others: Iterable[tuple[T, Pod]], most: int, not_all: Note
    ) -> Generator[Found, None, tuple[T, str] | None]:
        """
        Return the first of other forms of the pod that fits, and its node's name; None if none does.

        Args:
            others: each with what it is called.
            most: are tried.
            not_all: is yielded if there are more.
        """
        for number, (what, other) in enumerate(others):
            if number == most:
                yield not_all
                return None
            yield from self.warmed_up(other)
            decision = self.decision(other)
            if decision is not None:
                return what, decision.node_name
            yield None
        return None

    @property
    def reads_other_nodes(self) -> bool:
        """Whether the pod's spread depends on which other nodes count, so that a question to all nodes is no proof."""
        return any(constraint.hard for constraint in self.pod.constraints.spread)


Kind = Callable[[RefusedPod], Iterator[Found]]
"""Searches for the smallest changes of one kind; yields None whenever other tasks may run."""


_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9.]*", re.ASCII)


def any_of(names: Sequence[str]) -> str:
    """Return `a`, `a or b`, or `a, b or 4 more`; the names are of the cluster, and may be of any length."""
    head, _, last = few([clipped(name) for name in names]).rpartition(" and ")
    return f"{head} or {last}" if head else last


def with_template(sentence: str, pod: Pod) -> str:
    """Return a sentence about a change of a pod's spec, and where to make it if a controller makes the pod."""
    if pod.owner is None:
        return sentence
    where = "of its Deployment" if pod.owner.kind == "ReplicaSet" else "there"
    return f"{sentence} {pod.owner.kind} {clipped(pod.owner.name)} makes the pod: change the template {where}."


def kubectl(*words: str, names: Sequence[str]) -> str:
    """
    Return a command for a shell; empty if a name is none that an API server accepts.

    A file may have a pod that is called `--all`, and somebody may run the command without a second look.

    Args:
        words: all of the command but `kubectl`.
        names: those of its words that are names from the cluster.
    """
    return shlex.join(("kubectl", *words)) if all(map(_NAME.fullmatch, names)) else ""
