"""
`/v1/why`: why a pod waits, and with `node` what every filter says of that node.

It needs the right to get the pod. A pod that the reader may not get is refused whether it exists or not.
"""

from collections.abc import Mapping
from typing import Final

import attrs
from aiohttp import web

from neuron_scheduler.explain.answers import Explanation, NodeExplanation, Verdict
from neuron_scheduler.explain.why import explain_on_node, explain_pod
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.serving.access import Reader
from neuron_scheduler.serving.asked import Asked
from neuron_scheduler.serving.encoding import replied
from neuron_scheduler.serving.lane import Turn
from neuron_scheduler.serving.names import namespaces_in, node_as_seen, pod_as_seen
from neuron_scheduler.serving.pages import RefusedError, parameters

PARAMETERS: Final = ("namespace", "pod", "node")
ASKS_FOR_NONE: Final = "The autoscaler is not asked for a machine: capacityRequests is not set for this schedulerName."
NOT_YET: Final = "The autoscaler is not asked for a machine yet."


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
        seen: Explanation | NodeExplanation
        if values.get("node"):
            of_node = await turn.run(explain_on_node(asked.cluster, pod, profile, values["node"]))
            seen = node_as_seen(of_node, await reader.names(namespaces_in(of_node)))
        else:
            steps = explain_pod(asked.cluster, pod, profile, budgets=asked.budgets(), now=asked.now())
            of_pod = await turn.run(steps)
            of_pod = attrs.evolve(of_pod, capacity_request=self._capacity_request(pod, of_pod))
            seen = pod_as_seen(of_pod, await reader.names(namespaces_in(of_pod)))
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
