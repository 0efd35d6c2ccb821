"""
A trial: pods placed on the cluster one after the other, and taken back if not all of them fit.

Each pod is decided and assumed as by itself, so devices, spreading, affinity, host ports and volumes count as they do
for single pods. Taking one back restores its nomination and its volumes, too. A trial on the cluster itself costs less
than one on a fork, whose indexes are copied when they are first asked for.
"""

from collections.abc import Collection, Mapping

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet
from neuron_scheduler.cluster.rows.node_info import NodeInfo, Nomination
from neuron_scheduler.model.devices import ClaimWrite
from neuron_scheduler.model.pod import Pod, assigned_pod
from neuron_scheduler.neuron.annotations import annotations_for
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.recheck import still_takes
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, NoNode, select_node
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan, release, reserve_volumes


@attrs.frozen
class AssumedPod:
    """
    A pod that is assumed on its node.

    Attributes:
        allocation: the annotations with its devices and cores.
        volumes: what its volumes need; None if nothing.
        claims: what is to be written to its claims.
        nominated: the nomination that it had, with the node's name.
    """

    pod: Pod
    decision: Decision
    allocation: Mapping[str, str]
    volumes: VolumePlan | None = None
    claims: tuple[ClaimWrite, ...] = ()
    nominated: tuple[str, Nomination] | None = None


class ChangedError(Exception):
    """A pod or node of the trial changed during a pause."""


@attrs.define(eq=False)
class Trial:
    """Pods that are assumed for now, in the order in which they were placed, and the number of decisions made."""

    cluster: Cluster
    pods: list[AssumedPod] = attrs.field(factory=list)
    decisions: int = 0
    _rows: dict[str, NodeInfo | None] = attrs.field(factory=dict)  # by name, with the last pod that was placed there

    def place(self, pod: Pod, profile: Profile, among: NodeSet | None = None) -> Decision | NoNode:
        """
        Assume a pod on the best of the nodes, if one takes it. Raises ChangedError: the pod is gone, or it has a node.
        """
        if self.cluster.node_of(pod.uid) is not None or _is_gone(self.cluster, pod):
            raise ChangedError
        self.decisions += 1
        result = select_node(self.cluster, pod, profile, among)
        if isinstance(result, Decision):
            self.pods.append(take_with_volumes(self.cluster, pod, result))
            self._rows[result.node_name] = self.cluster.node(result.node_name)
        return result

    def check(self) -> None:
        """Raise ChangedError if a pod is gone, or has another node, or its node would not take it any more."""
        changed = {name for name, before in self._rows.items() if not self._is_unchanged(name, before)}
        keys = self._topology_keys() if changed else ()
        for taken in self.pods:
            pod, name = taken.pod, taken.decision.node_name
            if not self.cluster.is_assumed(pod.uid) or _is_gone(self.cluster, pod):
                raise ChangedError
            if name in changed and not self._still_takes(taken, keys):
                raise ChangedError

    def _is_unchanged(self, name: str, before: NodeInfo | None) -> bool:
        row = self.cluster.node(name)
        return row is before and row is not None and not row.neuron_usage.double_booked

    def _still_takes(self, taken: AssumedPod, keys: Collection[str]) -> bool:
        before, row = self._rows[taken.decision.node_name], self.cluster.node(taken.decision.node_name)
        if row is None or before is None:
            return row is not None
        now, then = row.node.labels, before.node.labels
        stays = all(now.get(key) == then.get(key) for key in keys)  # agents change other labels all the time
        return stays and still_takes(row, taken.pod, taken.decision.cores)

    def _topology_keys(self) -> set[str]:
        """Return the labels by whose domains the pods were placed, each beside the others."""
        groups = {each.pod.group.key for each in self.pods if each.pod.group is not None}
        keys = {self.cluster.groups.group(key).topology for key in groups}
        for constraints in {id(each.pod.constraints): each.pod.constraints for each in self.pods}.values():
            keys.update([term.topology_key for term in constraints.terms_about_pods])
            keys.update([constraint.topology_key for constraint in constraints.spread])
        return keys

    def undo(self, down_to: int = 0) -> None:
        """Take the last ones back until so many are left."""
        while len(self.pods) > down_to:
            give_back(self.cluster, self.pods.pop())


def take(cluster: Cluster, pod: Pod, decision: Decision) -> AssumedPod:
    """
    Treat a pod as bound where it was decided.

    Raises:
        ValueError: the pod is on a node already, or the decision is out of date.
    """
    allocation, nominated = _allocation(cluster, pod, decision), cluster.nomination(pod.uid)
    assumed = assigned_pod(pod, decision.node_name, allocation)
    if decision.placement is not None and decision.placement.sets:
        row = cluster.node(decision.node_name)
        chosen = () if row is None else row.node.published.keys_of(decision.placement.sets, decision.node_name)
        assumed = attrs.evolve(assumed, devices=(*pod.devices, *chosen))
    cluster.assume(assumed, decision.cores)
    return AssumedPod(pod, decision, allocation, nominated=nominated)


def take_with_volumes(cluster: Cluster, pod: Pod, decision: Decision) -> AssumedPod:
    """As `take`, with what the pod's volumes need on the node."""
    taken = take(cluster, pod, decision)
    if not (pod.constraints.volume_claims or pod.claims):
        return taken
    try:
        volumes = reserve_volumes(cluster, pod, decision.node_name) if pod.constraints.volume_claims else None
        return attrs.evolve(taken, volumes=volumes, claims=_plan_claims(cluster, pod, decision))
    except Exception:
        give_back(cluster, taken)
        raise


def _plan_claims(cluster: Cluster, pod: Pod, decision: Decision) -> tuple[ClaimWrite, ...]:
    row, sets = cluster.node(decision.node_name), () if decision.placement is None else decision.placement.sets
    if cluster.claims is None or row is None:
        return ()
    return cluster.claims.plan(pod, row.node, sets)


def give_back(cluster: Cluster, taken: AssumedPod) -> None:
    """Undo both; what the watch has confirmed since stays."""
    pod = taken.pod
    cluster.forget(pod.uid)
    if taken.volumes is not None:
        release(cluster, taken.volumes)
    if taken.nominated is not None and cluster.node_of(pod.uid) is None and not _is_gone(cluster, pod):
        cluster.nominate(*taken.nominated)


def _is_gone(cluster: Cluster, pod: Pod) -> bool:
    return pod.group is not None and pod.uid not in cluster.groups.members(pod.group.key)


def _allocation(cluster: Cluster, pod: Pod, decision: Decision) -> Mapping[str, str]:
    node_info = cluster.node(decision.node_name)
    by_claims = pod.neuron is not None and pod.neuron.wanted is not None
    if decision.placement is None or node_info is None or node_info.machine is None or by_claims:
        return {}
    return annotations_for(
        pod=pod, machine=node_info.machine, placement=decision.placement, node_name=decision.node_name
    )
