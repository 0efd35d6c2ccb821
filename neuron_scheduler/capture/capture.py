"""
A cluster as it was at one time, as a value.

Unlike the running process, it has no queue: pods of all schedulers are found by their names. Does not follow changes.
"""

import difflib
from collections.abc import Mapping

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.model.disruption import DisruptionBudget
from neuron_scheduler.model.pod import Pod


@attrs.frozen(eq=False, kw_only=True)
class Capture:
    """
    What was read of a cluster.

    Attributes:
        cluster: with the pods on nodes, and the space that is kept for pending pods.
        pods: all pods that have not ended, by `namespace/name`.
        waiting: those of them that have no node and are not being deleted, of every scheduler, oldest first.
        budgets: all PodDisruptionBudgets, by namespace and name.
        notes: what could not be read, or only in part, and what that means; one sentence each.
        source: where it was read, for people.
        taken: when, in seconds since the epoch.
        ended: keys of pods that have ended, where the source has them.
        unreadable: reasons why pods cannot be read, by key.
    """

    cluster: Cluster
    pods: Mapping[str, Pod]
    waiting: tuple[Pod, ...]
    budgets: tuple[DisruptionBudget, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    taken: float = 0.0
    ended: frozenset[str] = frozenset()
    unreadable: Mapping[str, Malformed] = attrs.field(factory=dict)

    def similar(self, key: str) -> list[str]:
        """Return up to three names of pods that are like this one, those of the same namespace first."""
        namespace, _, name = key.partition("/")
        near = [pod.name for pod in self.pods.values() if pod.namespace == namespace]
        close = [f"{namespace}/{other}" for other in difflib.get_close_matches(name, near, n=3)]
        same_name = [other for other, pod in self.pods.items() if pod.name == name]
        return list(dict.fromkeys([*close, *same_name]))[:3]
