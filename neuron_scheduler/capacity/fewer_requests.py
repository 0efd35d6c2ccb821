"""
The plan, after a look whether it needs one open request less.

Pods come after a machine was asked for. If the autoscaler adds a machine for them by itself, what that has left may
serve the pods of a request: as long as the machine of the request has not come, it is asked for in vain. If it was
bought already, the autoscaler counts the new pods onto it as soon as nothing asks for it any more.

A request is given up only if the plan without it leaves no further pod without a place, so the next plan does not ask
again. Refuses to look at more than one request: a plan costs time, and the next one looks at the next.
"""

from collections.abc import Generator

import attrs

from neuron_scheduler.capacity.plan import PODS_A_STEP, planned
from neuron_scheduler.capacity.question import Plan, Question


def planned_with_fewest(question: Question) -> Generator[None, None, Plan]:
    """Return what the waiting pods need, without an open request that they do not need."""
    question = attrs.evolve(question, cluster=question.cluster.fork())  # both plans are about the same moment
    yield
    plan = yield from planned(question)
    name = yield from _least_used(question, plan)
    if not name:
        return plan
    remaining = {other: need for other, need in question.open.items() if other != name}
    fewer = yield from planned(attrs.evolve(question, open=remaining))
    if not fewer.without_place <= plan.without_place:
        return plan
    return attrs.evolve(fewer, surplus=(*fewer.surplus, name))


def _least_used(question: Question, plan: Plan) -> Generator[None, None, str]:
    """Return the request whose machine has not come and is used least, of several the newest; else empty."""
    awaited = [name for name in [*question.open][::-1] if name in question.awaited and name in plan.serving]
    request_of = {uid: name for name in awaited for uid in plan.serving[name]}
    used = dict.fromkeys(awaited, 0.0)
    for number, waiting in enumerate(question.waiting if awaited else ()):
        name, request = request_of.get(waiting.pod.uid), waiting.pod.neuron
        if name is not None and request is not None:
            used[name] += request.total / question.open[name].silicon.get(request.resource, request.total)
        if number % PODS_A_STEP == 0:
            yield
    return min(awaited, key=lambda name: used[name], default="")
