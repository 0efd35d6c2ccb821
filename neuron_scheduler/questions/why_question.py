"""
`/v1/why`: why a pod waits, and with `node` what every filter says of that node.

It needs the right to get the pod. A pod that the reader may not get is refused whether it exists or not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.explain.answers.explanation import Explanation, NodeExplanation, Verdict
from neuron_scheduler.explain.why import explain_on_node, explain_pod
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.questions.encoding import replied
from neuron_scheduler.questions.lane import Turn
from neuron_scheduler.questions.parameters import AskedWronglyError, parameters
from neuron_scheduler.questions.readers import Reader
from neuron_scheduler.questions.redaction import namespaces_in, redacted
from neuron_scheduler.questions.refusals import bad
from neuron_scheduler.questions.served_profiles import ServedProfiles
from neuron_scheduler.scheduling.plugins.cause import Cause

PARAMETERS: Final = ("namespace", "pod", "node")
ASKS_FOR_NONE: Final = "The autoscaler is not asked for a machine: capacityRequests is not set for this schedulerName."
NOT_YET: Final = "The autoscaler is not asked for a machine yet."


@attrs.define(eq=False, kw_only=True)
class WhyQuestion:
    """
    Answers `/v1/why`.

    Attributes:
        pod_of: the last known state of a pod by its key; None if there is none.
        budgets: all PodDisruptionBudgets.
        profiles: with which it is decided.
        now: seconds since the epoch.
        capacity_request_of: what this process says about a machine for a waiting pod that an autoscaler may be asked
            for; empty if there is nothing to say, None if the pod's profile asks for none.
        leads: whether this replica is the active one, which asks.
        notes: what a reader has to know of this process: one sentence each.
    """

    cluster: Cluster
    pod_of: Callable[[str], Pod | None]
    budgets: Callable[[], Sequence[DisruptionBudget]]
    profiles: ServedProfiles
    now: Callable[[], float]
    capacity_request_of: Callable[[Pod], str | None]
    leads: Callable[[], bool]
    notes: Callable[[], tuple[str, ...]]

    async def answer(self, request: Request, reader: Reader, turn: Turn) -> Reply:
        """Return why the pod waits, as the reader may see it."""
        values = parameters(request.query, PARAMETERS)
        key = key_of(values)
        namespace, name = key.split("/", 1)
        if not await reader.may_get_pod(namespace, name):
            return bad(
                f"you may not get the pod {key}: kubectl auth can-i get pods/{name} --namespace {namespace}", 403
            )
        pod = self.pod_of(key)
        if pod is None:
            return bad(f"there is no pod {key}, or it has ended", 404)
        profile = self.profiles.of(pod.scheduler_name)
        if values.get("node"):
            of_node = await turn.last(explain_on_node(self.cluster, pod, profile, values["node"]))
            return await self._replied(request, reader, of_node, key, turn)
        steps = explain_pod(self.cluster, pod, profile, budgets=self.budgets(), now=self.now())
        explanation = await turn.last(steps)
        explanation = attrs.evolve(explanation, capacity_request=self._capacity_request(pod, explanation))
        return await self._replied(request, reader, explanation, key, turn)

    def _capacity_request(self, pod: Pod, explanation: Explanation) -> str:
        """Return whether a machine is asked for, as far as it is a matter; a standby replica does not know."""
        if explanation.verdict is not Verdict.WAITS or not self.leads():
            return ""
        sentence = self.capacity_request_of(pod)
        if sentence or explanation.cause != Cause.FRAGMENTATION:
            return sentence or ""
        return ASKS_FOR_NONE if sentence is None else NOT_YET

    async def _replied(
        self,
        request: Request,
        reader: Reader,
        explanation: Explanation | NodeExplanation,
        key: str,
        turn: Turn,
    ) -> Reply:
        names = await reader.names(await turn.last(namespaces_in(explanation)))
        answer = redacted(explanation, names, own=(key,))
        notes = (*self.notes(), *self.profiles.notes, *answer.notes)
        return await replied(request, attrs.evolve(answer, notes=notes), turn)


def key_of(values: Mapping[str, str]) -> str:
    """
    Return the key of the pod that is asked about: `pod=NAMESPACE/NAME`, or both parameters.

    Raises:
        AskedWronglyError: there is none.
    """
    namespace, slash, name = values.get("pod", "").rpartition("/")
    if slash and values.get("namespace", namespace) != namespace:
        raise AskedWronglyError("the parameters namespace and pod name two namespaces")
    namespace = namespace or values.get("namespace", "")
    if not namespace or not name or "/" in namespace:
        raise AskedWronglyError("name the pod: ?namespace=NAMESPACE&pod=NAME")
    return f"{namespace}/{name}"
