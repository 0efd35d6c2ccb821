"""
The workloads: each kind of pod that some scheduler is said to be slow with.

The pods of the constrained workloads have the request of `one-shape`, so that only the constraint differs. Values and
manifests only; `run` creates them.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import attrs

from tests.control_plane.objects import node_manifest, pod_manifest
from tests.control_plane.rest import Object

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
SIZES: Final = (1, 4, 1, 8, 1, 4, 1, 16)
OWN_SELECTORS: Final = 2_500
GROUP_SIZE: Final = 3
PREEMPTING: Final = 6  # one pod of so many preempts, because each such pod costs a decision, a deletion and a wait
BACKGROUND: Final = "background"  # the namespace of pods that exist before
HIGH_PRIORITY: Final = "high"
Manifests = Iterator[Object]


@attrs.frozen(kw_only=True)
class Workload:
    """
    Pods for a run.

    Attributes:
        title: for people.
        pod: the manifest of the pod with that number.
        share: only one in `share` of the pods is created.
        schedulable: whether the pod with that number can be bound.
        filled: whether every node is filled before with a pod of low priority.
        churn: whether bound pods are deleted, and nodes come and go, all the while.
        paced: whether pods arrive at a fixed rate, rather than all before the start.
        by_claims: whether nodes publish their devices, and each pod has a claim on them.
        packed: whether kube-scheduler, too, must fill nodes one after the other to find room for the largest pods.
    """

    title: str
    pod: Callable[[int], Object]
    share: int = 1
    schedulable: Callable[[int], bool] = lambda _number: True
    filled: bool = False
    churn: bool = False
    paced: bool = False
    by_claims: bool = False
    packed: bool = False

    def count(self, pods: int) -> int:
        """Return how many pods are created if so many are requested."""
        return max(pods // self.share, 1)

    def manifests(self, pods: int) -> Manifests:
        """Yield the pods in the order of their creation."""
        return (self.pod(number) for number in range(self.count(pods)))

    def bindable(self, pods: int) -> int:
        """Return how many of them can be bound."""
        return sum(self.schedulable(number) for number in range(self.count(pods)))


def pod_name(number: int) -> str:
    """Return the name of a pod; `observer` knows pods by it."""
    return f"run-{number:06d}"


def _pod(number: int, *, neuron: int = 1, cpu: str = "1", memory: str = "1Gi", app: str = "run", **spec: Any) -> Object:
    return pod_manifest(
        pod_name(number),
        neuron=neuron,
        requests={"cpu": cpu, "memory": memory},
        labels={"app": app},
        terminationGracePeriodSeconds=0,  # no kubelet: a deleted pod is gone at once
        **spec,
    )


def _unlike(number: int) -> Object:
    return _pod(number, cpu=f"{500 + number}m", memory=f"{256 + number}Mi")


def _spread(key: str, app: str = "run") -> Mapping[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _has(app)}
    return {"topologySpreadConstraints": [constraint]}


def _terms(kind: str, key: str, app: str = "run") -> Mapping[str, Any]:
    term = {"topologyKey": key, "labelSelector": _has(app)}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _has(app: str) -> Object:
    return {"matchLabels": {"app": app}}


def _own_selectors(number: int) -> Object:
    app = f"workload-{number % OWN_SELECTORS}"
    return _pod(number, app=app, **_spread(ZONE, app), **_terms("podAntiAffinity", HOSTNAME, app))


def _in_a_group(number: int) -> Object:
    group = {"pod-group.scheduling.sigs.k8s.io/name": f"group-{number // GROUP_SIZE}"}
    pod = _pod(number)
    pod["metadata"]["labels"] |= group | {"pod-group.scheduling.sigs.k8s.io/min-available": str(GROUP_SIZE)}
    return pod


def _by_claim(number: int) -> Object:
    return _pod(number, neuron=0, resourceClaims=[{"name": "neurons", "resourceClaimName": pod_name(number)}])


def _half_too_large(number: int) -> Object:
    return _pod(number, cpu="1" if number % 2 else "1000")


WORKLOADS: Final[Mapping[str, Workload]] = {
    "one-shape": Workload(title="one device, all alike", pod=_pod),
    "mix": Workload(
        title="1/4/8/16 devices", pod=lambda number: _pod(number, neuron=SIZES[number % len(SIZES)]), packed=True
    ),
    "unlike": Workload(title="no two requests alike", pod=_unlike),
    "spread-zone": Workload(title="hard spread by zone", pod=lambda number: _pod(number, **_spread(ZONE))),
    "spread-hostname": Workload(title="hard spread by hostname", pod=lambda number: _pod(number, **_spread(HOSTNAME))),
    "anti-affinity": Workload(
        title="anti-affinity by hostname", pod=lambda number: _pod(number, **_terms("podAntiAffinity", HOSTNAME))
    ),
    "affinity": Workload(title="affinity by zone", pod=lambda number: _pod(number, **_terms("podAffinity", ZONE))),
    "workloads": Workload(title="2,500 workloads", pod=_own_selectors),
    "churn": Workload(title="churn with deletions", pod=_pod, churn=True),
    "unschedulable": Workload(
        title="half unschedulable", pod=_half_too_large, schedulable=lambda number: number % 2 == 1
    ),
    "preemption": Workload(
        title="preemption, full cluster",
        pod=lambda number: _pod(number, cpu="64", priorityClassName=HIGH_PRIORITY),
        share=PREEMPTING,
        filled=True,
    ),
    "groups": Workload(title="groups of three", pod=_in_a_group),
    "paced": Workload(title="arrivals at a fixed pace", pod=_pod, share=3, paced=True),
    "claims": Workload(title="one device by claim", pod=_by_claim, by_claims=True),
    "claims-paced": Workload(title="claims at a fixed pace", pod=_by_claim, share=3, paced=True, by_claims=True),
}
ALL_WORKLOADS_AT: Final = 5_000  # nodes
EVERYWHERE: Final = ("one-shape", "mix", "unlike")  # measured with every number of nodes, and with the Binding loops
WITH_EXTENDER: Final = ("mix",)


def node(number: int) -> Object:
    """Return the node with that number, in one of three zones."""
    return node_manifest(node_name(number), "trn1.32xlarge", labels={ZONE: f"zone-{number % 3}"})


def node_name(number: int) -> str:
    """Return the name of a node."""
    return f"node-{number:05d}"


def filler(number: int) -> Object:
    """Return a pod of low priority that fills the node with that number, without using its devices."""
    return pod_manifest(
        f"filler-{number:05d}",
        namespace=BACKGROUND,
        requests={"cpu": "127", "memory": "1Gi"},
        nodeName=node_name(number),
        terminationGracePeriodSeconds=0,
    )
