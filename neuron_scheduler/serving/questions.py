"""
The questions, by path: `/v1/why`, `/v1/fit`, `/v1/fleet`, `/v1/waiting` and `/v1/decisions`.

Each may be about a `namespace`, whose pods' names are then shown to a reader who may get them. `why` says why a pod
waits, and with `node` what every filter says of that node. A pod that the reader may not get is refused whether it
exists or not.

`fit` says how many more pods fit. A query describes a pod by its size; a body is a workload, as `kubectl apply` reads.
A workload needs the right to get the pods of its namespace, because its affinity is about them, and those of other
namespaces that its affinity names or selects. Else a reader could learn by trials which labels others' pods have, and
where they are. YAML is refused: it takes longer to read than one step may.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs

from neuron_scheduler.capture.sizes import SIZES, count, workload_of_size
from neuron_scheduler.capture.workloads import read_workload
from neuron_scheduler.explain.answers import Explanation, RecentDecisions, Verdict, Waiting, WaitingEntry
from neuron_scheduler.explain.fit import how_many_of
from neuron_scheduler.explain.fleet import fleet
from neuron_scheduler.explain.why import (
    SCHEDULER_NAME,
    NoSuchNodeError,
    decider_text,
    explain_on_node,
    explain_pod,
    pods_of,
    summary_of,
    unserved_text,
)
from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.replicated import Replicated
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.places import QueuedPod
from neuron_scheduler.serving.access import Access
from neuron_scheduler.serving.answering import Answering, Compute, Question, Steps
from neuron_scheduler.serving.names import Names
from neuron_scheduler.serving.pages import METHODS, RefusedError, WebPage
from neuron_scheduler.serving.sources import AnswerSources
from neuron_scheduler.telemetry.errors import ConfigurationError

ASKS_FOR_NONE: Final = "No machine is requested from an autoscaler: capacity requests are off."
NOT_YET: Final = "No machine is requested from an autoscaler yet."
MOST_WAITING: Final = 1000
"""Pods that one answer lists."""
MOST_PICTURED: Final = 5000
"""Machines that one answer pictures."""
_NOT_LISTED: Final = f"Only {MOST_WAITING} pods are listed: first those of the namespace in question, then the oldest."
_SOURCE: Final = "the request"


def why(sources: AnswerSources, question: Question) -> Steps:
    question.require_known("node", "pod")
    query, profiles = question.query, sources.profiles
    namespace, name, node_name = (query.get(parameter, "") for parameter in ("namespace", "pod", "node"))
    if not namespace or not name:
        raise RefusedError(400, "name the pod: ?namespace=NAMESPACE&pod=NAME")
    if namespace not in question.names:
        may = f"kubectl auth can-i get pods --namespace {namespace}"
        raise RefusedError(403, f"you may not get the pods of namespace {namespace}: {may}")
    pod = sources.pod_of(f"{namespace}/{name}")
    if pod is None:
        near = [each for each in map(_pod_of, _pending(sources)) if each.namespace == namespace]
        yield
        raise RefusedError(404, f"there is no pod {namespace}/{name}, or it has ended{pods_of(name, near)}")
    profile = profiles.of(pod.scheduler_name)
    if node_name:
        try:
            found = yield from explain_on_node(sources.cluster, pod, profile, node_name)
        except NoSuchNodeError as error:
            raise RefusedError(404, str(error)) from None
    else:
        found = yield from explain_pod(sources.cluster, pod, profile)
        found = attrs.evolve(found, capacity_request=_capacity_request(sources, pod, found))
    return attrs.evolve(found, notes=(*profiles.notes, *found.notes))


def _capacity_request(sources: AnswerSources, pod: Pod, explanation: Explanation) -> str:
    """Return whether a machine is asked for, as far as it is a matter; a standby replica does not know."""
    if explanation.verdict is not Verdict.WAITS or not sources.leads():
        return ""
    sentence = sources.capacity_request_of(pod)
    if sentence or explanation.cause != Cause.FRAGMENTATION:
        return sentence or ""
    return ASKS_FOR_NONE if sentence is None else NOT_YET


def fit(sources: AnswerSources, question: Question) -> Steps:
    query, text, profiles = question.query, question.body, sources.profiles
    question.require_known("replicas", *(SIZES if text is None else ()))
    namespace = query.get("namespace", "")
    try:
        replicas = count(query["replicas"]) if query.get("replicas") else 0
        if text is None:
            workload = workload_of_size(query, namespace=namespace, scheduler_name=profiles.first, replicas=replicas)
        else:
            workload = _workload(text, namespace, replicas)
    except (ConfigurationError, ValueError) as error:
        raise RefusedError(400, str(error)) from None
    _require_rights(workload, question.names)
    profile = profiles.of(workload.pod_sets[0].template.scheduler_name)
    found = yield from how_many_of(sources.cluster, workload, profile)
    return attrs.evolve(found, notes=(*profiles.notes, *found.notes))


def _workload(text: bytes, namespace: str, replicas: int) -> Replicated:
    """Return the workload in question; 0 replicas stand for its own number."""
    if text.lstrip()[:1] != b"{":
        raise RefusedError(400, "send the workload as JSON: kubectl create --dry-run=client -o json -f FILE prints it")
    return read_workload(_SOURCE, text, namespace=namespace, replicas=replicas or None)


def _require_rights(workload: Replicated, names: Names) -> None:
    """Refuse a workload that is about pods that the reader may not get."""
    templates = [pods.template for pods in workload.pod_sets]
    terms = [term for template in templates for term in template.constraints.terms_about_pods]
    about = {template.namespace for template in templates}.union(*(term.namespaces for term in terms)) - {""}
    hidden = sorted(namespace for namespace in about if namespace not in names)
    if hidden:
        sentence = f"it is about the pods of namespace {hidden[0]}; ask with namespace={hidden[0]}, if you may get them"
        raise RefusedError(403, sentence)
    if any(term.namespace_selector is not None for term in terms) and names.shown is not None:
        sentence = "a namespaceSelector is about all namespaces, and you may not get the pods of all of them"
        raise RefusedError(403, sentence)


def fleet_now(sources: AnswerSources, question: Question) -> Steps:
    question.require_known()
    return (yield from fleet(sources.cluster, most=MOST_PICTURED))


def waiting_now(sources: AnswerSources, question: Question) -> Steps:
    """Return the pods that wait, the oldest first; others push none out of the namespace whose names are shown."""
    question.require_known()
    namespace = question.query.get("namespace", "")
    first = namespace if namespace in question.names else ""
    pods = sorted(_pending(sources), key=_creation_of)
    yield
    notes: tuple[str, ...] = ()
    total = len(pods)
    if total > MOST_WAITING:
        notes = (_NOT_LISTED,)
        pods.sort(key=lambda pod: _pod_of(pod).namespace != first)
        yield
        pods = sorted(pods[:MOST_WAITING], key=_creation_of)
    lines = []
    for pod in pods:
        lines.append(_line(sources, pod))
        yield
    return Waiting(tuple(lines), total, notes)


def _pending(sources: AnswerSources) -> list[Pod | QueuedPod]:
    pods: list[Pod | QueuedPod] = [*sources.queue.pods()]
    if sources.profiles.first:  # without a queue of its own, kube-scheduler's pods are those that it serves
        pods += sources.unserved()
    return pods


def _pod_of(pending: Pod | QueuedPod) -> Pod:
    return pending if isinstance(pending, Pod) else pending.pod


def _creation_of(pending: Pod | QueuedPod) -> float:
    return _pod_of(pending).created


def _line(sources: AnswerSources, pending: Pod | QueuedPod) -> WaitingEntry:
    if isinstance(pending, Pod):
        profile = sources.profiles.of(pending.scheduler_name)
        text = unserved_text(pending, profile) or decider_text(pending, profile)
        return WaitingEntry(summary_of(pending), SCHEDULER_NAME, text)
    return WaitingEntry(summary_of(pending.pod), sources.queue.cause_of(pending).value, pending.pod.refused_because)


def decisions(sources: AnswerSources, question: Question) -> Steps:
    question.require_known()
    yield
    return RecentDecisions(tuple(sources.decisions.latest()))


ON_THE_PAGE: Final = {"/v1/fleet": fleet_now, "/v1/waiting": waiting_now, "/v1/decisions": decisions}
"""What the page shows to everybody, without the names of pods."""
QUESTIONS: Final[Mapping[str, Compute]] = {"/v1/why": why, "/v1/fit": fit, **ON_THE_PAGE}


def question_pages(sources: AnswerSources, reviews: UserReviews, *, public: bool) -> dict[str, WebPage]:
    """Return the pages by path; where `public`, what the page shows needs no token, and has no names of pods."""
    access = Access(reviews=reviews, clock=sources.clock, public=ON_THE_PAGE if public else ())
    answering = Answering(sources, access)
    return {
        path: WebPage(partial(answering.answer, compute=compute), (*METHODS, "POST") if compute is fit else METHODS)
        for path, compute in QUESTIONS.items()
    }
