"""
`/v1/fit`: how many more pods fit. A query describes a pod by its size; a body is a workload, as `kubectl apply` reads.

A workload in a namespace needs the right to get that namespace's pods, because its affinity is about them. Refuses
YAML, which takes longer to read than one step may.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.explain.fit import Buy, how_many_of
from neuron_scheduler.explain.replicated import Replicated
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE
from neuron_scheduler.questions.encoding import replied
from neuron_scheduler.questions.lane import last
from neuron_scheduler.questions.parameters import AskedWronglyError, number, parameters
from neuron_scheduler.questions.readers import Reader
from neuron_scheduler.questions.redaction import namespaces_in, redacted
from neuron_scheduler.questions.refusals import bad
from neuron_scheduler.questions.served_profiles import ServedProfiles
from neuron_scheduler.workload_files.workloads import read_workloads

LARGEST_BODY: Final = 128 << 10
"""Bytes; reading so much takes 2 ms."""
MOST_REPLICAS: Final = 10_000
MOST_BOUGHT: Final = 1000
_COMMON: Final = ("buy", "namespace", "replicas")
_OF_A_POD: Final = (*_COMMON, "cores", "cpu", "devices", "instanceType", "memory", "schedulerName")
_SOURCE: Final = "the request"
_NAMED: Final = "fit"


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

    async def answer(self, request: Request, reader: Reader, gone: Callable[[], bool]) -> Reply:
        """Return how many pods fit, as the reader may see it."""
        values = parameters(request.query, _COMMON if request.method == "POST" else _OF_A_POD)
        workload = _workload(request.content if request.method == "POST" else self._pod(values), values)
        for namespace in sorted({pods.template.namespace for pods in workload.pod_sets} - {""}):
            if not await reader.may_get_pod(namespace, ""):
                return bad(f"you may not get the pods of namespace {namespace}; leave the namespace out", 403)
        profile = self.profiles.of(workload.pod_sets[0].template.scheduler_name)
        steps = how_many_of(self.cluster, workload, profile, buy=_purchases(values.get("buy", "")))
        fit = await last(steps, gone)
        answer = redacted(fit, await reader.names(await last(namespaces_in(fit), gone)))
        return await replied(
            request, attrs.evolve(answer, notes=(*self.notes(), *self.profiles.notes, *answer.notes)), gone
        )

    def _pod(self, values: Mapping[str, str]) -> bytes:
        """Return the pod that a query describes."""
        counts = [(NEURON_DEVICE, values.get("devices", "")), (NEURON_CORE, values.get("cores", ""))]
        asked = [(name, part) for name, text in counts for part in text.split(",") if part]
        others = {name: values[name] for name in ("cpu", "memory") if values.get(name)}
        if not asked and not others:
            raise AskedWronglyError(
                "say what a pod asks for: ?devices=8, or 4,4 for two containers, or send a workload"
            )
        spec: dict[str, Any] = {
            "schedulerName": values.get("schedulerName") or self.profiles.first,
            "containers": [
                _container(place, {name: part}) for place, (name, part) in enumerate(asked or [("cpu", "0")])
            ],
            "tolerations": [{"key": name, "operator": "Exists"} for name in sorted({name for name, _ in asked})],
        }
        spec["containers"][0]["resources"]["requests"].update(others)
        if values.get("instanceType"):
            spec["nodeSelector"] = {"node.kubernetes.io/instance-type": values["instanceType"]}
        metadata = {"name": _NAMED, "namespace": values.get("namespace", "")}
        return msgspec.json.encode({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def _container(place: int, amounts: Mapping[str, str]) -> dict[str, Any]:
    return {"name": f"c{place}", "resources": {"requests": {**amounts}, "limits": {**amounts}}}


def _workload(text: bytes, values: dict[str, str]) -> Replicated:
    """
    Return the workload that is asked about.

    Raises:
        AskedWronglyError: there is none, or more than one.
    """
    if text.lstrip()[:1] != b"{":
        raise AskedWronglyError("send the workload as JSON: kubectl create --dry-run=client -o json -f FILE prints it")
    try:
        workloads = read_workloads(_SOURCE, text, namespace=values.get("namespace", ""))
    except ConfigurationError as error:
        raise AskedWronglyError(str(error)) from None
    if len(workloads) != 1:
        raise AskedWronglyError(f"the request has {len(workloads)} workloads; send one")
    replicas = number(values, "replicas", most=MOST_REPLICAS, otherwise=-1)
    workload = workloads[0]
    if workload.name.endswith(f" {_NAMED}"):
        return attrs.evolve(workload, name="", replicas=max(replicas, 0))
    return workload if replicas < 0 else attrs.evolve(workload, replicas=replicas)


def _purchases(text: str) -> Sequence[Buy]:
    """
    Return the purchases of `2:trn1.32xlarge,1:trn2.48xlarge`.

    Raises:
        AskedWronglyError: it is something else.
    """
    purchases = []
    for part in filter(None, text.split(",")):
        nodes, _, instance_type = part.partition(":")
        count = number({"buy": nodes or "?"}, "buy", most=MOST_BOUGHT)
        if not count or not instance_type:
            raise AskedWronglyError(f"buy={part[:40]} is no purchase; write 2:trn1.32xlarge")
        purchases.append((count, instance_type))
    return purchases
