"""
What every search for a change starts from, and the trials that prove a change.

A trial asks the decision's own filters about another form of the pod, or about one row that is replaced meanwhile. A
fork for each trial would have to build its indexes again.
"""

import re
import shlex
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Final, TypeVar

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.explain.answers import SuggestedChange
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.selectors import Requirement, Taint
from neuron_scheduler.model.wording import clip
from neuron_scheduler.scheduling.cycle.filters import nodes_that_fit
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, FitError, decide_on, select_node
from neuron_scheduler.scheduling.preemption.disruption_allowance import DisruptionAllowance

T = TypeVar("T")
_MOST_VALUES: Final = 4
MOST_TRIED: Final = 32
_NAME: Final = re.compile(r"[a-z0-9][-a-z0-9.]*", re.ASCII)

SearchStep = SuggestedChange | str | None
"""A change, a note about what was not tried and why, or nothing, so that other tasks may run."""
NOT_ALL: Final = f"Only the first {MOST_TRIED} changes of a kind were tried; others may help."


@attrs.frozen(eq=False)
class RefusedPod:
    """
    A refused pod in its cluster.

    Attributes:
        cluster: a fork that nobody changes, in which the pod has no nomination.
        error: why no node takes it.
        disruption_allowance: what the budgets of the other pods allow.
    """

    cluster: Cluster
    pod: Pod
    profile: Profile
    error: FitError
    disruption_allowance: DisruptionAllowance = attrs.field(
        default=attrs.Factory(lambda self: DisruptionAllowance(self.cluster.budgets), takes_self=True), init=False
    )

    def decision(self, pod: Pod, among: NodeSet | None = None) -> Generator[None, None, Decision | None]:
        """Return the decision about another form of the pod; None if it does not fit, or on none of these nodes."""
        yield from IndexWarmup().prepare(self.cluster, pod, self.profile)
        result = select_node(self.cluster, pod, self.profile, among)
        yield
        return result if isinstance(result, Decision) else None

    def nodes_that_fit(self, pod: Pod, among: NodeSet) -> Generator[None, None, NodeSet]:
        yield from IndexWarmup().prepare(self.cluster, pod, self.profile)
        return nodes_that_fit(self.cluster, pod, self.profile.steps_for(pod), among)

    def fits_with(self, node_info: NodeInfo) -> bool:
        name = node_info.node.name
        slot = self.cluster.view.slot(name)
        if slot is None:
            return False
        with self.cluster.row_replaced(slot, node_info):
            return isinstance(decide_on(self.cluster, self.pod, self.profile, name), Decision)

    def first_fitting(self, others: Iterable[tuple[T, Pod]]) -> Generator[SearchStep, None, tuple[T, str] | None]:
        """Return the first of other forms of the pod that fits, as it is called, and its node's name; None if none."""
        for number, (what, other) in enumerate(others):
            if number == MOST_TRIED:
                yield NOT_ALL
                break
            decision = yield from self.decision(other)
            if decision is not None:
                return what, decision.node_name
        return None


Answer = tuple[tuple[SuggestedChange, ...], tuple[str, ...]]
"""The changes, and the notes."""
Kind = Callable[[RefusedPod], Iterator[SearchStep]]
"""Searches for a change of one kind."""


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it: `key=value:effect`."""
    return f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"


def requirement_text(requirement: Requirement) -> str:
    values = requirement.values
    more = f", and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else ""
    written = f" ({', '.join(map(clip, values[:_MOST_VALUES]))}{more})" if values else ""
    return f"{clip(requirement.key)} {requirement.operator}{written}"


def with_template(sentence: str, pod: Pod) -> str:
    """Return a sentence about a change of a pod's spec, and where to make it if a controller makes the pod."""
    if pod.owner is None:
        return sentence
    where = "of its Deployment" if pod.owner.kind == "ReplicaSet" else "there"
    return f"{sentence} {pod.owner.kind} {clip(pod.owner.name)} makes the pod: change the template {where}."


def kubectl(*words: str, names: Sequence[str]) -> str:
    """
    Return a command for a shell; empty if one of `names` among its words is none that an API server accepts.

    A file may have a pod that is called `--all`, and somebody may run the command without a second look.
    """
    return shlex.join(("kubectl", *words)) if all(map(_NAME.fullmatch, names)) else ""
