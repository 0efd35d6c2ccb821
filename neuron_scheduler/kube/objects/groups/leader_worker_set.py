"""
LeaderWorkerSet: a label with the group's key, and annotations with its size and its topology.

With the start policy LeaderReady the workers exist only once the leader runs, and no pod shows its policy. So the group
is inferred. With `exclusive-topology` the controller pins the workers to the leader's domain, so the leader goes where
the whole group has room. Source: `api/leaderworkerset/v1`.
"""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.kube.objects.groups.coscheduling import count_of
from neuron_scheduler.model.pod_group import Dialect, GroupKey, PodGroup

LABEL: Final = "leaderworkerset.sigs.k8s.io/group-key"
NAME: Final = "leaderworkerset.sigs.k8s.io/name"
INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
RANK: Final = "leaderworkerset.sigs.k8s.io/worker-index"
SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
SUBGROUP: Final = "leaderworkerset.sigs.k8s.io/subgroup-key"
"""With it the affinity of a pod is about its subgroup, and not about its group."""
TOPOLOGY: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"

LONGEST_LABEL: Final = 317
"""Characters of a label's key: a prefix, a slash and a name. An annotation may have any number."""


def read(namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> PodGroup | None:
    if not labels.get(LABEL):
        return None
    name, index = labels.get(NAME), labels.get(INDEX)
    title = f"{name}-{index}" if name and index else labels[LABEL]  # the key is a digest of just these two
    key, topology = GroupKey(Dialect.LEADER_WORKER_SET, namespace, title), annotations.get(TOPOLOGY, "")
    return PodGroup(key, expected=count_of(annotations.get(SIZE, "")), topology=topology[:LONGEST_LABEL])
