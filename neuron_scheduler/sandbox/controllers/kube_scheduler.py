"""
Gives pods of the default scheduler a node, so that a Deployment of ours and pods without Neuron run.

A stand-in for kube-scheduler that knows node selectors, node affinity, cordons and taints, and spreads by the number of
pods. It does not count cpu and memory, and places no pod that asks for Neuron: such pods are for the scheduler that the
sandbox is made for.
"""

from collections import Counter
from typing import Final

import attrs

from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resources import NODES, PODS
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.controllers import node_fit
from neuron_scheduler.sandbox.controllers.owned import record

NAME: Final = "default-scheduler"
_NEURON: Final = "aws.amazon.com/neuron"  # the beginning of all three resource names


@attrs.define(eq=False)
class KubeScheduler:
    """Binds each pending pod of its name to the node with the fewest pods, first to nodes without Neuron."""

    registry: Registry
    _told: set[str] = attrs.field(factory=set)  # uids of pods whose refusal is in an event

    def sync(self) -> None:
        """Bind every pod that can be bound now."""
        pods = self.registry.store.objects(PODS.storage)
        waiting = [pod for pod in pods if _is_waiting(pod)]
        if not waiting:
            return
        nodes = self.registry.store.objects(NODES.storage)
        load = Counter(pod["spec"].get("nodeName", "") for pod in pods)
        for pod in waiting:
            fitting = [] if _asks_for_neuron(pod) else [node for node in nodes if _fits(pod, node)]
            if fitting:
                best = min(fitting, key=lambda node: (_has_neuron(node), load[node["metadata"]["name"]]))
                load[best["metadata"]["name"]] += 1
                self._bind(pod, best["metadata"]["name"])
            elif pod["metadata"]["uid"] not in self._told:
                self._told.add(pod["metadata"]["uid"])
                self._record(pod, "FailedScheduling", _refusal(pod, len(nodes)), warning=True)

    def _bind(self, pod: Object, node: str) -> None:
        meta = pod["metadata"]
        body = {"metadata": {"name": meta["name"], "uid": meta["uid"]}, "target": {"kind": "Node", "name": node}}
        self.registry.bind(meta["namespace"], meta["name"], body)
        message = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self._record(pod, "Scheduled", message)

    def _record(self, pod: Object, reason: str, message: str, *, warning: bool = False) -> None:
        record(self.registry, PODS, pod, component=NAME, reason=reason, message=message, warning=warning)


def _is_waiting(pod: Object) -> bool:
    spec = pod["spec"]
    wanted = spec["schedulerName"] == NAME and not spec.get("nodeName") and not spec.get("schedulingGates")
    return wanted and "deletionTimestamp" not in pod["metadata"]


def _asks_for_neuron(pod: Object) -> bool:
    return any(
        name.startswith(_NEURON)
        for container in pod["spec"]["containers"]
        for name in container["resources"].get("limits") or {}
    )


def _has_neuron(node: Object) -> bool:
    return any(name.startswith(_NEURON) for name in node["status"].get("capacity") or {})


def _fits(pod: Object, node: Object) -> bool:
    return node_fit.is_chosen(pod["spec"], node) and node_fit.is_tolerated(pod["spec"], node)


def _refusal(pod: Object, nodes: int) -> str:
    if _asks_for_neuron(pod):
        return "the sandbox's kube-scheduler places no pods that ask for Neuron: set schedulerName: my-scheduler"
    return f"0/{nodes} nodes are available: no node matches the pod's node selector and tolerations."
