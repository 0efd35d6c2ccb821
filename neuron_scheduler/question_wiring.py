"""
Builds what the ports serve beside health and metrics: the answers to questions, and the page.

Does not build them unless the settings say so: nothing of the cluster is shown by default.
"""

import time

from neuron_scheduler.endpoints.exchange import Page
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.user_review import UserReviews
from neuron_scheduler.page import pages as page
from neuron_scheduler.profiles import count_unknown_only
from neuron_scheduler.questions.assembly import Asked, assembled
from neuron_scheduler.questions.decision_ring import DecisionRing
from neuron_scheduler.questions.served_profiles import ServedProfiles
from neuron_scheduler.scheduling.cycle.profile import extender_profile
from neuron_scheduler.settings.config import Config
from neuron_scheduler.wiring import Parts, unsynced


def pages_of(config: Config, parts: Parts, client: Client) -> dict[str, Page]:
    """Return the pages that the settings ask for, by path."""
    if not config.answer_questions:
        return {}
    election, capacity, trusting = parts.election, parts.capacity, count_unknown_only(config)
    decisions = DecisionRing(now=time.time)
    parts.scheduling_loop.listeners.append(decisions.note)
    asked = Asked(
        cluster=parts.cluster,
        queue=parts.queue,
        pod_of=parts.pods.get,
        budgets=parts.budgets,
        profiles=ServedProfiles(parts.scheduling_loop.profiles, extender_profile(count_unknown_only=trusting)),
        decisions=decisions,
        unsynced=lambda: unsynced(parts.informers),
        leads=lambda: election is None or election.leading,
        clock=time.monotonic,
        now=time.time,
        capacity_request_of=lambda pod: capacity.said(pod.uid) if pod.scheduler_name in capacity.policies else None,
        count_unknown_only=trusting,
    )
    answers = assembled(asked, UserReviews(client), public=config.serve_page)
    return answers | page.pages() if config.serve_page else answers
