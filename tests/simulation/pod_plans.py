"""Pods as users write them, for the deeds of a scenario."""

from typing import Any, Final

import attrs

from sandbox.apiserver.store import Object
from sandbox.containers import RUN_SECONDS
from sandbox.fleet import CORE, DEVICE, INSTANCE_TYPE_LABEL

OURS: Final = "my-scheduler"
GATE: Final = "example.com/quota"
FINALIZER: Final = "example.com/billing"
PRIORITIES: Final = {"low": -100, "high": 1_000, "urgent": 100_000}
"""The priority classes of each cluster."""
NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
COUNT: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
KUEUE: Final = "kueue.x-k8s.io/pod-group-name"
KUEUE_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
ULTRASERVER: Final = "neuron.amazonaws.com/ultraserver-server-id-4"
"""Words for groups of pods, and the label of the UltraServer that a node is in."""


@attrs.frozen(kw_only=True)
class PodPlan:
    """
    A pod.

    Attributes:
        devices, cores: of each container; only one of the two is given.
        cpu: millicores of each container.
        priority: a class of `PRIORITIES`, or empty.
        instance_type: that its node has to have; empty for any.
        alone: it repels all pods of its own application from its node.
        gated, finalized, tolerant: it has a scheduling gate, a finalizer, a toleration of every taint.
        seconds: that its containers run; 0 for ever.
        grace: seconds that it gets to end.
        node: on which it has to be; empty for any.
        group: that it is in, by the words of coscheduling, or of Kueue if it is gated, with the count `least`; by AWS's
            recipe for UltraServers if that is 0, which is no more than a wish if it `prefers` that.
        claims: templates of which it gets claims; one with a slash is a claim that it shares.
    """

    name: str
    namespace: str = "default"
    devices: tuple[int, ...] = ()
    cores: tuple[int, ...] = ()
    cpu: int = 100
    priority: str = ""
    instance_type: str = ""
    app: str = "train"
    alone: bool = False
    gated: bool = False
    finalized: bool = False
    tolerant: bool = False
    seconds: float = 0.0
    grace: int = 30
    scheduler: str = OURS
    node: str = ""
    group: str = ""
    least: int = 0
    prefers: bool = False
    claims: tuple[str, ...] = ()

    def __str__(self) -> str:
        asks = [f"{count} devices" for count in self.devices] + [f"{count} cores" for count in self.cores]
        rest = {
            f"priority {self.priority}": self.priority,
            f"on {self.instance_type}": self.instance_type,
            "alone": self.alone,
            "gated": self.gated,
            "with a finalizer": self.finalized,
            "tolerant": self.tolerant,
            f"for {self.seconds:.0f} s": self.seconds,
            f"scheduler {self.scheduler}": self.scheduler != OURS,
            f"on node {self.node}": self.node,
            f"group {self.group} of {self.least}": self.group,
            "preferred": self.prefers,
            f"claims {' + '.join(self.claims)}": self.claims,
        }
        texts = [text for text, holds in rest.items() if holds]
        return ", ".join([f"{self.namespace}/{self.name}: {' + '.join(asks) or f'cpu {self.cpu}m'}", *texts])

    @property
    def manifest(self) -> Object:
        """What a user would apply."""
        metadata: dict[str, Any] = {"name": self.name, "namespace": self.namespace, "labels": {"app": self.app}}
        metadata["annotations"] = {RUN_SECONDS: f"{self.seconds:g}"} if self.seconds else {}
        if self.group and self.gated:
            metadata["labels"][KUEUE] = self.group
            metadata["annotations"][KUEUE_COUNT] = str(self.least)
        elif self.group:
            metadata["labels"] |= {NAME: self.group, COUNT: str(self.least)} if self.least else {"job": self.group}
        if self.finalized:
            metadata["finalizers"] = [FINALIZER]
        asked = [(DEVICE, count) for count in self.devices] + [(CORE, count) for count in self.cores] or [("", 0)]
        spec: dict[str, Any] = {
            "schedulerName": self.scheduler,
            "restartPolicy": "Never" if self.seconds else "Always",
            "terminationGracePeriodSeconds": self.grace,
            "containers": [self._container(number, *ask) for number, ask in enumerate(asked)],
        }
        if self.claims:
            spec["resourceClaims"] = [_reference(number, claim) for number, claim in enumerate(self.claims)]
        if self.priority:
            spec["priorityClassName"] = self.priority
        if self.instance_type:
            spec["nodeSelector"] = {INSTANCE_TYPE_LABEL: self.instance_type}
        if self.node:
            spec["nodeSelector"] = {"kubernetes.io/hostname": self.node}
        if self.gated:
            spec["schedulingGates"] = [{"name": GATE}]
        if self.tolerant:
            spec["tolerations"] = [{"operator": "Exists"}]
        if self.alone:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": self.app}}}
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        if self.group and not self.least:
            term = {"topologyKey": ULTRASERVER, "labelSelector": {"matchLabels": {"job": self.group}}}
            wish = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            spec["affinity"] = {"podAffinity": wish if self.prefers else required}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _container(self, number: int, resource: str, count: int) -> dict[str, Any]:
        resources: dict[str, Any] = {"requests": {"cpu": f"{self.cpu}m"}}
        if count:
            resources["limits"] = {resource: str(count)}
        return {"name": f"c{number}", "image": "example.com/train:1", "resources": resources}


def _reference(number: int, claim: str) -> dict[str, str]:
    field = "resourceClaimName" if "/" in claim else "resourceClaimTemplateName"
    return {"name": f"c{number}", field: claim.rpartition("/")[2]}
