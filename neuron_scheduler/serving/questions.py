"""
The questions `/v1/why` and `/v1/fit`, and what all paths below `/v1/` have in common: who asks, the turn in the lane,
and what goes wrong.

`why` says why a pod waits, and with `node` what every filter says of that node. It needs the right to get the pod; one
that the reader may not get is refused whether it exists or not.

`fit` says how many more pods fit. A query describes a pod by its size; a body is a workload, as `kubectl apply` reads.
A workload in a namespace needs the right to get that namespace's pods, because its affinity is about them; so does a
workload whose affinity names other namespaces, or selects some. Else a reader could learn by trials which labels
others' pods have, and where they are. YAML is refused: it takes longer to read than one step may.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import attrs
from aiohttp import web

from neuron_scheduler.capture.sizes import SIZES, sized
from neuron_scheduler.capture.workloads import MOST_REPLICAS, read_workload
from neuron_scheduler.explain.answers import Explanation, Verdict
from neuron_scheduler.explain.fit import Replicated, how_many_of
from neuron_scheduler.explain.why import explain_on_node, explain_pod
from neuron_scheduler.kube.reviews import UserReviews
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.serving.access import Access, Reader
from neuron_scheduler.serving.asked import Asked
from neuron_scheduler.serving.encoding import replied
from neuron_scheduler.serving.feeds import FleetFeed, ListsFeed
from neuron_scheduler.serving.lane import CrowdedError, Lane, Turn
from neuron_scheduler.serving.names import as_seen, namespaces_in
from neuron_scheduler.serving.pages import METHODS, Answer, Page, RefusedError, number, parameters
from neuron_scheduler.telemetry.errors import ConfigurationError

FLEET, WAITING, DECISIONS = "/v1/fleet", "/v1/waiting", "/v1/decisions"
WHY, FIT = "/v1/why", "/v1/fit"
FEEDS: Final = (FLEET, WAITING, DECISIONS)
"""What the page shows to everybody, without the names of pods."""

Question = Callable[[web.BaseRequest, Reader, Turn], Awaitable[web.Response]]
"""Answers a request of a reader, whose turn it is."""

PARAMETERS: Final = ("namespace", "pod", "node")
ASKS_FOR_NONE: Final = "The autoscaler is not asked for a machine: capacityRequests is not set for this schedulerName."
NOT_YET: Final = "The autoscaler is not asked for a machine yet."
_OF_A_WORKLOAD: Final = ("namespace", "replicas")
_SOURCE: Final = "the request"


@attrs.define(eq=False)
class WhyQuestion:
    """Answers `/v1/why`."""

    asked: Asked

    async def answer(self, request: web.BaseRequest, reader: Reader, turn: Turn) -> web.Response:
        """Return why the pod waits, as the reader may see it."""
        values = parameters(request.query_string, PARAMETERS)
        key = key_of(values)
        namespace, name = key.split("/", 1)
        if not await reader.may_get_pod(namespace, name):
            may = f"kubectl auth can-i get pods/{name} --namespace {namespace}"
            raise RefusedError(403, f"you may not get the pod {key}: {may}")
        pod = self.asked.pod_of(key)
        if pod is None:
            raise RefusedError(404, f"there is no pod {key}, or it has ended")
        asked, profile = self.asked, self.asked.profiles.of(pod.scheduler_name)
        if values.get("node"):
            answer = await turn.run(explain_on_node(asked.cluster, pod, profile, values["node"]))
        else:
            answer = await turn.run(explain_pod(asked.cluster, pod, profile, budgets=asked.budgets()))
            answer = attrs.evolve(answer, capacity_request=self._capacity_request(pod, answer))
        seen = as_seen(answer, await reader.names(namespaces_in(answer)))
        notes = (*asked.notes(), *asked.profiles.notes, *seen.notes)
        return await replied(request, attrs.evolve(seen, notes=notes), turn)

    def _capacity_request(self, pod: Pod, explanation: Explanation) -> str:
        """Return whether a machine is asked for, as far as it is a matter; a standby replica does not know."""
        if explanation.verdict is not Verdict.WAITS or not self.asked.leads():
            return ""
        sentence = self.asked.capacity_request_of(pod)
        if sentence or explanation.cause != Cause.FRAGMENTATION:
            return sentence or ""
        return ASKS_FOR_NONE if sentence is None else NOT_YET


def key_of(values: Mapping[str, str]) -> str:
    """
    Return the key of the pod that is asked about: `pod=NAMESPACE/NAME`, or both parameters.

    Raises:
        RefusedError: there is none.
    """
    namespace, slash, name = values.get("pod", "").rpartition("/")
    if slash and values.get("namespace", namespace) != namespace:
        raise RefusedError(400, "the parameters namespace and pod name two namespaces")
    namespace = namespace or values.get("namespace", "")
    if not namespace or not name or "/" in namespace:
        raise RefusedError(400, "name the pod: ?namespace=NAMESPACE&pod=NAME")
    return f"{namespace}/{name}"


@attrs.define(eq=False)
class FitQuestion:
    """Answers `/v1/fit`."""

    asked: Asked

    async def answer(self, request: web.BaseRequest, reader: Reader, turn: Turn) -> web.Response:
        """Return how many pods fit, as the reader may see it."""
        posted = request.method == "POST"
        values = parameters(request.query_string, _OF_A_WORKLOAD if posted else (*_OF_A_WORKLOAD, *SIZES))
        namespace, replicas = values.get("namespace", ""), number(values, "replicas", most=MOST_REPLICAS)
        profiles = self.asked.profiles
        try:
            if posted:
                workload = _workload(await request.read(), namespace, replicas)
            else:
                workload = sized(values, namespace=namespace, scheduler_name=profiles.first, replicas=replicas)
        except ConfigurationError as error:
            raise RefusedError(400, str(error)) from None
        await _require_rights(workload, reader)
        profile = profiles.of(workload.pod_sets[0].template.scheduler_name)
        fit = await turn.run(how_many_of(self.asked.cluster, workload, profile))
        notes = (*self.asked.notes(), *profiles.notes, *fit.notes)
        return await replied(request, attrs.evolve(fit, notes=notes), turn)


async def _require_rights(workload: Replicated, reader: Reader) -> None:
    """
    Return if the workload is not about pods that the reader may not get.

    Raises:
        RefusedError: it is.
    """
    templates = [pods.template for pods in workload.pod_sets]
    terms = [term for template in templates for term in template.constraints.terms_about_pods]
    about = {template.namespace for template in templates}.union(*(term.namespaces for term in terms)) - {""}
    selects = any(term.namespace_selector is not None for term in terms)
    if not about and not selects:
        return
    names = await reader.names(about)
    hidden = sorted(namespace for namespace in about if namespace not in names)
    if hidden:
        raise RefusedError(403, f"you may not get the pods of namespace {hidden[0]}; leave the namespace out")
    if selects and names.shown is not None:
        sentence = "a namespaceSelector is about all namespaces, and you may not get the pods of all of them"
        raise RefusedError(403, sentence)


def _workload(text: bytes, namespace: str, replicas: int) -> Replicated:
    """
    Return the workload that is asked about; 0 replicas stand for what it says itself.

    Raises:
        RefusedError: it is no JSON.
        ConfigurationError: it cannot be read.
    """
    if text.lstrip()[:1] != b"{":
        raise RefusedError(400, "send the workload as JSON: kubectl create --dry-run=client -o json -f FILE prints it")
    return read_workload(_SOURCE, text, namespace=namespace, replicas=replicas or None)


def question_pages(asked: Asked, reviews: UserReviews, *, public: bool) -> dict[str, Page]:
    """
    Return the pages of all questions, by path.

    Args:
        asked: what they are answered from.
        reviews: asks the API server about readers.
        public: whether the feeds of the page need no token, and then have no names of pods.
    """
    lists = ListsFeed(asked)
    questions: dict[str, Question] = {
        WHY: WhyQuestion(asked).answer,
        FIT: FitQuestion(asked).answer,
        FLEET: FleetFeed(asked).answer,
        WAITING: lists.waiting,
        DECISIONS: lists.decided,
    }
    access = Access(reviews=reviews, clock=asked.clock, public=FEEDS if public else ())
    lane = Lane()
    return {
        path: Page(_answering(question, access, lane, asked), (*METHODS, "POST") if path == FIT else METHODS)
        for path, question in questions.items()
    }


def _answering(question: Question, access: Access, lane: Lane, asked: Asked) -> Answer:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        reader = await access.reader(request)
        missing = asked.unsynced()
        if missing is not None:
            raise RefusedError(503, f"this process has just started: {missing}")
        if request.method == "POST":  # before the turn: a slow client must not keep it
            await _read(request)
        try:
            async with lane.turn() as turn:
                return await question(request, reader, turn)
        except CrowdedError as error:
            raise RefusedError(429, str(error)) from error
        except TimeoutError as error:
            sentence = f"the answer takes longer than {lane.seconds:g} s; ask for less, or try again"
            raise RefusedError(503, sentence) from error

    return answer


async def _read(request: web.BaseRequest) -> None:
    """Read the body; the request keeps it."""
    too_large = RefusedError(413, f"the body is larger than {request.client_max_size} bytes")
    if (request.content_length or 0) > request.client_max_size:
        raise too_large
    try:
        await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise too_large from error
    except web.RequestPayloadError as error:
        raise RefusedError(400, f"the body cannot be read: {error}") from error
