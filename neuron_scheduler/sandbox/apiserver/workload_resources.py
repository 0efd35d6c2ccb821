"""
The kinds whose controllers make pods: those of `apps`, `batch` and the old ReplicationController.
"""

from typing import Final

from neuron_scheduler.sandbox.apiserver.resource import METADATA, Resource


def _workload(kind: str, short_name: str, *, group: str = "apps", scale: bool = True) -> Resource:
    return Resource(
        plural=f"{kind.lower()}s",
        singular=kind.lower(),
        kind=kind,
        group=group,
        short_names=(short_name,) if short_name else (),
        categories=("all",),
        subresources=("scale", "status") if scale else ("status",),
        fields=METADATA,
        generation=True,
    )


DEPLOYMENTS: Final = _workload("Deployment", "deploy")
REPLICA_SETS: Final = _workload("ReplicaSet", "rs")
STATEFUL_SETS: Final = _workload("StatefulSet", "sts")
DAEMON_SETS: Final = _workload("DaemonSet", "ds", scale=False)
JOBS: Final = _workload("Job", "", group="batch", scale=False)
REPLICATION_CONTROLLERS: Final = _workload("ReplicationController", "rc", group="")

WORKLOADS: Final = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, JOBS, REPLICATION_CONTROLLERS)
