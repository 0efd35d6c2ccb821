"""Builds the questions from the parts of the process. Does not depend on the settings."""

import secrets
from collections.abc import Callable, Sequence

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.endpoints.exchange import Page
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.questions.decision_ring import DecisionRing
from neuron_scheduler.questions.fit_question import LARGEST_BODY, FitQuestion
from neuron_scheduler.questions.fleet_feed import FleetFeed
from neuron_scheduler.questions.lane import Lane
from neuron_scheduler.questions.lists_feed import ListsFeed
from neuron_scheduler.questions.readers import Readers, Reviews
from neuron_scheduler.questions.routes import DECISIONS, FEEDS, FIT, FLEET, WAITING, WHY, Route, pages
from neuron_scheduler.questions.served_profiles import ServedProfiles
from neuron_scheduler.questions.why_question import WhyQuestion
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue

STANDBY = "This replica is on standby: it sees the cluster as the active one does, and has decided nothing."


def _asks_for_none(_pod: Pod) -> None:
    """Say that no profile asks for machines."""


@attrs.frozen(eq=False, kw_only=True)
class Asked:
    """
    What questions are answered from.

    Attributes:
        pod_of: the last known state of a pod by its key; None if there is none.
        budgets: all PodDisruptionBudgets.
        profiles: with which pods are decided.
        decisions: those that this process has made lately.
        unsynced: says what this process does not know yet, None if it knows all.
        leads: whether this replica is the active one.
        clock: seconds, monotonic.
        now: seconds since the epoch.
        capacity_request_of: what this process says about a machine for a waiting pod that an autoscaler may be asked
            for; empty if there is nothing to say, None if the pod's profile asks for none.
        count_unknown_only: pods with unknown ids count by number only.
    """

    cluster: Cluster
    queue: SchedulingQueue
    pod_of: Callable[[str], Pod | None]
    budgets: Callable[[], Sequence[DisruptionBudget]]
    profiles: ServedProfiles
    decisions: DecisionRing
    unsynced: Callable[[], str | None]
    leads: Callable[[], bool]
    clock: Callable[[], float]
    now: Callable[[], float]
    capacity_request_of: Callable[[Pod], str | None] = _asks_for_none
    count_unknown_only: bool = False

    def notes(self) -> tuple[str, ...]:
        """Return what every reader has to know of this process."""
        return () if self.leads() else (STANDBY,)


def assembled(asked: Asked, reviews: Reviews, *, public: bool) -> dict[str, Page]:
    """
    Return the pages of all questions, by path.

    Args:
        asked: what they are answered from.
        reviews: asks the API server about readers.
        public: whether the feeds of the page need no token, and then have no names of pods.
    """
    fleet = FleetFeed(
        cluster=asked.cluster,
        clock=asked.clock,
        instance=secrets.token_hex(8),
        notes=asked.notes,
        count_unknown_only=asked.count_unknown_only,
    )
    lists = ListsFeed(queue=asked.queue, decisions=asked.decisions, notes=asked.notes)
    why = WhyQuestion(
        cluster=asked.cluster,
        pod_of=asked.pod_of,
        budgets=asked.budgets,
        profiles=asked.profiles,
        now=asked.now,
        capacity_request_of=asked.capacity_request_of,
        leads=asked.leads,
        notes=asked.notes,
    )
    fit = FitQuestion(cluster=asked.cluster, profiles=asked.profiles, notes=asked.notes)
    routes = {
        WHY: Route(ask=why.answer),
        FIT: Route(ask=fit.answer, most=LARGEST_BODY),
        FLEET: Route(ask=fleet.answer),
        WAITING: Route(ask=lists.waiting),
        DECISIONS: Route(ask=lists.decided),
    }
    readers = Readers(reviews=reviews, clock=asked.clock, public=FEEDS if public else ())
    return pages(routes, readers, Lane(), unsynced=asked.unsynced)
