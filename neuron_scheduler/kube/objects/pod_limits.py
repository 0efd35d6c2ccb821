"""
How many parts one pod may have: a pod beyond a limit is refused, so that no pod delays the others.

The API server limits the bytes of an object only: a pod of 1.5 MB can have 18,000 affinity terms. Each may have to be
compared with every pod. The limits are far above what workloads need. A pod beyond a limit keeps only what it uses
(requests, ports, claims, disks), and no term that restricts where it, or others, may run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import chain
from typing import Final

from msgspec.structs import replace

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.wire import Expression, NodeTerm, Quantities
from neuron_scheduler.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, NEURON_NAMES

_RESOURCES: Final = "different resources in requests"
_ON_EVERY_NODE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, *NEURON_NAMES)

MOST: Final = {
    # Each is compared with every pod of its namespaces, in each domain of its key. Manifests have one to three.
    "pod affinity and anti-affinity terms and topology spread constraints": 100,
    # Each is compared with every pod that matches the others of its selector. Manifests have one to five a term.
    "requirements in label selectors of pods and namespaces": 500,
    # A pod's labels are looked up among them, and a term is indexed under each of them.
    "values and namespaces in pod affinity terms and topology spread constraints": 1000,
    # Each is one look-up in an index of nodes. Manifests have a few.
    "node selector entries, node affinity terms and expressions": 1000,
    # Each is one look-up in an index of nodes. A list of every node to be avoided in a large cluster still fits.
    "values in node affinity expressions": 10_000,
    # Each is compared with every taint. The API server's own admission adds two.
    "tolerations": 500,
    # A pod is indexed under each of its labels. Controllers and people together set some tens.
    "labels": 500,
    # Each has an image and requests. A kubelet starts them one after the other.
    "containers and init containers": 500,
    # Each resource that a node lacks is a reason in the message.
    _RESOURCES: 100,
    # Some list ranges of ports one by one.
    "container ports": 5000,
    # Each claim is looked up with its volume and its class. An instance attaches some tens of disks.
    "volumes": 500,
    # Each is removed by a controller.
    "scheduling gates": 500,
    # Each is looked up whenever one of them changes. Manifests have one or two.
    "resource claims": 100,
}
"""What is counted, with the most that a pod may have of it. The API server itself has no limit for any of them."""

_FEW: Final = 50
"""If a pod has at most so many labels, tolerations, ports and so on in all, none of them exceeds its limit."""


def size_of(spec: wire.PodSpec, labels: Mapping[str, str]) -> tuple[int, str]:
    """
    Return how many parts a pod has, 0 for few, and which limit it exceeds and what to do, in words for its owner.

    The words are empty if it exceeds none.
    """
    if spec.affinity is None and not spec.topology_spread_constraints:
        parts = len(labels) + len(spec.node_selector or ()) + len(spec.tolerations or ()) + len(spec.volumes or ())
        for container in spec.containers or ():
            resources = container.resources
            parts += 1 + len(container.ports or ())
            parts += 0 if resources is None else len(resources.requests or ()) + len(resources.limits or ())
        rare = spec.init_containers or spec.scheduling_gates or spec.resources or spec.overhead or spec.resource_claims
        if parts <= _FEW and not rare:
            return 0, ""  # most pods
    counts = list(_counts(spec, labels))
    for (parts_of_a_kind, most), count in zip(MOST.items(), counts, strict=True):
        if count > most:
            words = f"pod has {count} {parts_of_a_kind}; this scheduler takes at most {most} in one pod, use fewer"
            return sum(counts), words
    return sum(counts), ""


def without_restrictions(spec: wire.PodSpec) -> wire.PodSpec:
    """Return the spec of a refused pod with what the pod uses, and without terms that are expensive to honour."""
    containers, init_containers = spec.containers, spec.init_containers
    if len(_resource_names(spec, [*(containers or ()), *(init_containers or ())])) > MOST[_RESOURCES]:
        containers, init_containers = _accountable_containers(containers), _accountable_containers(init_containers)
    return replace(
        spec,
        containers=containers,
        init_containers=init_containers,
        node_selector=None,
        affinity=None,
        tolerations=None,
        topology_spread_constraints=None,
        scheduling_gates=(spec.scheduling_gates or [])[:1] or None,
        resource_claims=None,
    )


def _accountable_containers(containers: list[wire.Container] | None) -> list[wire.Container]:
    """Return the containers with requests only for Neuron and for the resources that every node has."""
    return [
        c
        if c.resources is None
        else replace(c, resources=wire.Resources(_accountable(c.resources.requests), _accountable(c.resources.limits)))
        for c in containers or ()
    ]


def _accountable(amounts: Quantities | None) -> Quantities | None:
    return {name: amounts[name] for name in _ON_EVERY_NODE if name in amounts} if amounts else None


def fewer_labels(labels: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the first labels by name of a refused pod, as many as a pod may have."""
    if labels is None or len(labels) <= MOST["labels"]:
        return labels
    return {key: labels[key] for key in sorted(labels)[: MOST["labels"]]}


def _counts(spec: wire.PodSpec, labels: Mapping[str, str]) -> Iterator[int]:
    """Yield how much the pod has of each, in the order of `MOST`."""
    affinity = spec.affinity or wire.Affinity()
    spreads = spec.topology_spread_constraints or ()
    pod_terms = [*_pod_terms(affinity.pod_affinity), *_pod_terms(affinity.pod_anti_affinity)]
    selectors = [t.label_selector for t in (*pod_terms, *spreads)] + [t.namespace_selector for t in pod_terms]
    present = [selector for selector in selectors if selector is not None]
    yield len(pod_terms) + len(spreads)
    required = [each for selector in present for each in (selector.match_labels, selector.match_expressions)]
    yield _sum(required) + _sum(spread.match_label_keys for spread in spreads)
    values = _values(chain.from_iterable(selector.match_expressions or () for selector in present))
    yield values + _sum(term.namespaces for term in pod_terms)
    node_terms = list(_node_terms(affinity.node_affinity or wire.NodeAffinity()))
    expressions = [e for term in node_terms for e in (*(term.match_expressions or ()), *(term.match_fields or ()))]
    yield len(spec.node_selector or ()) + len(node_terms) + len(expressions)
    yield _values(expressions)
    yield len(spec.tolerations or ())
    yield len(labels)
    containers = [*(spec.init_containers or ()), *(spec.containers or ())]
    yield len(containers)
    yield len(_resource_names(spec, containers))
    yield _sum(container.ports for container in containers)
    yield len(spec.volumes or ())
    yield len(spec.scheduling_gates or ())
    yield len(spec.resource_claims or ())


def _pod_terms(affinity: wire.PodAffinity | None) -> Iterator[wire.PodTerm]:
    if affinity is not None:
        yield from affinity.required_during_scheduling_ignored_during_execution or ()
        for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ():
            yield preferred.pod_affinity_term


def _node_terms(affinity: wire.NodeAffinity) -> Iterator[NodeTerm]:
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms or ()
    for preferred in affinity.preferred_during_scheduling_ignored_during_execution or ():
        yield preferred.preference


def _values(expressions: Iterable[Expression]) -> int:
    return _sum(expression.values for expression in expressions)


def _resource_names(spec: wire.PodSpec, containers: Iterable[wire.Container]) -> set[str]:
    resources = [container.resources for container in containers] + [spec.resources]
    names = {name for r in resources if r is not None for name in (*(r.requests or ()), *(r.limits or ()))}
    return names | set(spec.overhead or ())


def _sum(parts: Iterable[Sized | None]) -> int:
    return sum(len(part) for part in parts if part)
