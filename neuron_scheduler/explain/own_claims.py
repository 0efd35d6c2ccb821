"""
Which of the claims that replicas would create for themselves can be considered before they exist.

A claim whose class waits for its first consumer is provisioned where the pod goes, so the decision reads it. Any other
claim is provisioned at once, at a place that nobody can know now: it is left out, and a note says so. Does not guess
the default class.
"""

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.explain.replicated import PodSet, Replicated
from neuron_scheduler.model.volumes import PersistentVolumeClaim


def with_known_claims(cluster: Cluster, workload: Replicated) -> Replicated:
    """Return the workload without the claims that cannot be considered, with a note for each class of them."""
    notes = dict.fromkeys(workload.notes)
    pod_sets: list[PodSet] = []
    for pod_set in workload.pod_sets:
        problems = {claim.name: _problem(cluster, claim) for claim in pod_set.claims}
        left_out = {name for name, problem in problems.items() if problem}
        notes |= dict.fromkeys(filter(None, problems.values()))
        pod_sets.append(_without(pod_set, left_out) if left_out else pod_set)
    return attrs.evolve(workload, pod_sets=tuple(pod_sets), notes=tuple(notes))


def _problem(cluster: Cluster, claim: PersistentVolumeClaim) -> str:
    storage_class = cluster.volumes.classes.get(claim.class_name)
    if not claim.class_name:
        return "Volumes of the default storage class are not considered: which class that is, is not known here."
    if storage_class is None:
        return f"Volumes of the storage class {claim.class_name} are not considered: the class is not known here."
    if not storage_class.waits:
        return (
            f"Volumes of the storage class {claim.class_name} are not considered: they are provisioned before a pod"
            " has a node."
        )
    return ""


def _without(pod_set: PodSet, names: set[str]) -> PodSet:
    constraints = pod_set.template.constraints
    constraints = attrs.evolve(
        constraints,
        volume_claims=tuple(name for name in constraints.volume_claims if name not in names),
        ephemeral_claims=tuple(name for name in constraints.ephemeral_claims if name not in names),
    )
    template = attrs.evolve(pod_set.template, constraints=constraints)
    return attrs.evolve(
        pod_set, template=template, claims=tuple(claim for claim in pod_set.claims if claim.name not in names)
    )
