"""
`/v1/fit`: how many more pods fit. A query describes a pod by its size; a body is a workload, as `kubectl apply` reads.

A workload in a namespace needs the right to get that namespace's pods, because its affinity is about them; so does a
workload whose affinity names other namespaces, or selects some. Else a reader could learn by trials which labels
others' pods have, and where they are. YAML is refused: it takes longer to read than one step may.
"""

from typing import Final

import attrs
from aiohttp import web

from neuron_scheduler.capture.sizes import counts, purchases, sized
from neuron_scheduler.capture.workloads import read_workloads
from neuron_scheduler.explain.fit import Replicated, how_many_of
from neuron_scheduler.serving.access import Reader
from neuron_scheduler.serving.asked import Asked
from neuron_scheduler.serving.encoding import replied
from neuron_scheduler.serving.lane import Turn
from neuron_scheduler.serving.pages import RefusedError, number, parameters
from neuron_scheduler.telemetry.errors import ConfigurationError

MOST_REPLICAS: Final = 10_000
_COMMON: Final = ("buy", "namespace", "replicas")
_OF_A_POD: Final = (*_COMMON, "cores", "cpu", "devices", "instanceType", "memory", "schedulerName")
_SOURCE: Final = "the request"


@attrs.define(eq=False)
class FitQuestion:
    """Answers `/v1/fit`."""

    asked: Asked

    async def answer(self, request: web.BaseRequest, reader: Reader, turn: Turn) -> web.Response:
        """Return how many pods fit, as the reader may see it."""
        posted = request.method == "POST"
        values = parameters(request.query_string, _COMMON if posted else _OF_A_POD)
        try:
            workload = _workload(await request.read(), values) if posted else self._sized(values)
            bought = purchases(values.get("buy", ""))
        except (ConfigurationError, ValueError) as error:
            raise RefusedError(400, str(error)) from None
        await _require_rights(workload, reader)
        profiles = self.asked.profiles
        profile = profiles.of(workload.pod_sets[0].template.scheduler_name)
        fit = await turn.run(how_many_of(self.asked.cluster, workload, profile, buy=bought))
        notes = (*self.asked.notes(), *profiles.notes, *fit.notes)
        return await replied(request, attrs.evolve(fit, notes=notes), turn)

    def _sized(self, values: dict[str, str]) -> Replicated:
        """
        Return the replicas that a query describes.

        Raises:
            ConfigurationError, ValueError: it describes none.
        """
        return sized(
            devices=counts(values.get("devices", "")),
            cores=counts(values.get("cores", "")),
            cpu=values.get("cpu", ""),
            memory=values.get("memory", ""),
            instance_type=values.get("instanceType", ""),
            replicas=number(values, "replicas", most=MOST_REPLICAS),
            namespace=values.get("namespace", ""),
            scheduler_name=values.get("schedulerName") or self.asked.profiles.first,
        )


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


def _workload(text: bytes, values: dict[str, str]) -> Replicated:
    """
    Return the workload that is asked about.

    Raises:
        RefusedError: it is no JSON, or there are several.
        ConfigurationError: it cannot be read.
    """
    if text.lstrip()[:1] != b"{":
        raise RefusedError(400, "send the workload as JSON: kubectl create --dry-run=client -o json -f FILE prints it")
    replicas = number(values, "replicas", most=MOST_REPLICAS) or None
    workloads = read_workloads(_SOURCE, text, namespace=values.get("namespace", ""), replicas=replicas)
    if len(workloads) != 1:
        raise RefusedError(400, f"the request has {len(workloads)} workloads; send one")
    return workloads[0]
