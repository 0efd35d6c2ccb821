"""
`/v1/fit`: how many more pods fit. A query describes a pod by its size; a body is a workload, as `kubectl apply` reads.

A workload in a namespace needs the right to get that namespace's pods, because its affinity is about them; so does a
workload whose affinity names other namespaces, or selects some. Else a reader could learn by trials which labels
others' pods have, and where they are. Refuses YAML, which takes longer to read than one step may.
"""

from collections.abc import Callable
from typing import Final

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.explain.fit import how_many_of
from neuron_scheduler.explain.replicated import Replicated
from neuron_scheduler.questions.encoding import replied
from neuron_scheduler.questions.lane import Turn
from neuron_scheduler.questions.parameters import AskedWronglyError, number, parameters
from neuron_scheduler.questions.readers import Reader
from neuron_scheduler.questions.redaction import namespaces_in, redacted
from neuron_scheduler.questions.refusals import bad
from neuron_scheduler.questions.served_profiles import ServedProfiles
from neuron_scheduler.workload_files.sizes import counts, purchases, sized
from neuron_scheduler.workload_files.workloads import read_workloads

LARGEST_BODY: Final = 128 << 10
"""Bytes; reading so much takes 2 ms."""
MOST_REPLICAS: Final = 10_000
_COMMON: Final = ("buy", "namespace", "replicas")
_OF_A_POD: Final = (*_COMMON, "cores", "cpu", "devices", "instanceType", "memory", "schedulerName")
_SOURCE: Final = "the request"


@attrs.define(eq=False, kw_only=True)
class FitQuestion:
    """
    Answers `/v1/fit`.

    Attributes:
        profiles: with which it is decided.
        notes: what a reader has to know of this process: one sentence each.
    """

    cluster: Cluster
    profiles: ServedProfiles
    notes: Callable[[], tuple[str, ...]]

    async def answer(self, request: Request, reader: Reader, turn: Turn) -> Reply:
        """Return how many pods fit, as the reader may see it."""
        values = parameters(request.query, _COMMON if request.method == "POST" else _OF_A_POD)
        try:
            workload = _workload(request.content, values) if request.method == "POST" else self._sized(values)
            bought = purchases(values.get("buy", ""))
        except (ConfigurationError, ValueError) as error:
            raise AskedWronglyError(str(error)) from None
        refusal = await _refusal(workload, reader)
        if refusal is not None:
            return refusal
        profile = self.profiles.of(workload.pod_sets[0].template.scheduler_name)
        steps = how_many_of(self.cluster, workload, profile, buy=bought)
        fit = await turn.last(steps)
        answer = redacted(fit, await reader.names(await turn.last(namespaces_in(fit))))
        notes = (*self.notes(), *self.profiles.notes, *answer.notes)
        return await replied(request, attrs.evolve(answer, notes=notes), turn)

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
            scheduler_name=values.get("schedulerName") or self.profiles.first,
        )


async def _refusal(workload: Replicated, reader: Reader) -> Reply | None:
    """Return the refusal of a workload that is about pods which the reader may not get; None if it is not."""
    templates = [pods.template for pods in workload.pod_sets]
    terms = [term for template in templates for term in template.constraints.terms_about_pods]
    about = {template.namespace for template in templates}.union(*(term.namespaces for term in terms)) - {""}
    selects = any(term.namespace_selector is not None for term in terms)
    if not about and not selects:
        return None
    names = await reader.names(about)
    hidden = sorted(namespace for namespace in about if namespace not in names)
    if hidden:
        return bad(f"you may not get the pods of namespace {hidden[0]}; leave the namespace out", 403)
    if selects and names.shown is not None:
        return bad("a namespaceSelector is about all namespaces, and you may not get the pods of all of them", 403)
    return None


def _workload(text: bytes, values: dict[str, str]) -> Replicated:
    """
    Return the workload that is asked about.

    Raises:
        AskedWronglyError: it is no JSON, or there are several.
        ConfigurationError: it cannot be read.
    """
    if text.lstrip()[:1] != b"{":
        raise AskedWronglyError("send the workload as JSON: kubectl create --dry-run=client -o json -f FILE prints it")
    replicas = number(values, "replicas", most=MOST_REPLICAS) or None
    workloads = read_workloads(_SOURCE, text, namespace=values.get("namespace", ""), replicas=replicas)
    if len(workloads) != 1:
        raise AskedWronglyError(f"the request has {len(workloads)} workloads; send one")
    return workloads[0]
