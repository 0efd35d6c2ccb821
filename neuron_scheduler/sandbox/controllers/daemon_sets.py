"""
Keeps a pod of a DaemonSet on each node that it chooses, and replaces pods of an old template node by node.

After `pkg/controller/daemon`. Pods reach their nodes through the default scheduler, by a node affinity. Without surge:
an old pod goes first. There are no ControllerRevisions, so `kubectl rollout history` and `undo` do not work.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, Final

import attrs

from neuron_scheduler.sandbox.apiserver.registry import Registry
from neuron_scheduler.sandbox.apiserver.resources import NODES, PODS
from neuron_scheduler.sandbox.apiserver.store import Object
from neuron_scheduler.sandbox.apiserver.workload_resources import DAEMON_SETS
from neuron_scheduler.sandbox.controllers import node_fit
from neuron_scheduler.sandbox.controllers.owned import Owned, is_active, is_ended, is_ready
from neuron_scheduler.sandbox.controllers.template_hash import template_hash

HASH_LABEL: Final = "controller-revision-hash"
_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


@attrs.define(eq=False)
class DaemonSets:
    """The controller of DaemonSets."""

    registry: Registry
    _owned: Owned = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._owned = Owned(self.registry, DAEMON_SETS, "daemonset-controller")

    def sync(self) -> None:
        """Bring every DaemonSet one step further."""
        daemon_sets = self.registry.store.objects(DAEMON_SETS.storage)
        nodes = self.registry.store.objects(NODES.storage) if daemon_sets else []
        for daemon_set in daemon_sets:
            template = _tolerant(daemon_set["spec"]["template"])
            chosen = [node for node in nodes if node_fit.is_chosen(template["spec"], node)]
            wanted = _named(template["spec"], chosen, "NoSchedule", "NoExecute")
            if "deletionTimestamp" not in daemon_set["metadata"]:
                self._place(daemon_set, template, wanted, _named(template["spec"], chosen, "NoExecute"))
                self._update(daemon_set, wanted)
            self._report(daemon_set, wanted)

    def _place(self, daemon_set: Object, template: Object, wanted: set[str], allowed: set[str]) -> None:
        """Create pods where they are wanted; delete those where they are not allowed, and those that have ended."""
        served = set()
        for pod in self._owned.objects(PODS, daemon_set):
            node = _node_of(pod)
            if is_active(pod) and node in allowed and node not in served:
                served.add(node)
            elif "deletionTimestamp" in pod["metadata"]:
                served.add(node)  # the next one comes when it is gone
            elif is_ended(pod) or is_active(pod):
                self._owned.delete_pod(daemon_set, pod)
        for node in sorted(wanted - served):
            if self._owned.create_pod(daemon_set, _for_node(template, node)) is None:
                return

    def _update(self, daemon_set: Object, wanted: set[str]) -> None:
        """Delete pods of old templates, as many as may be missing."""
        strategy = daemon_set["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        limit = _limit(strategy["rollingUpdate"]["maxUnavailable"], len(wanted))
        pods = [pod for pod in self._owned.objects(PODS, daemon_set, adopt=False) if is_active(pod)]
        current = template_hash(daemon_set["spec"]["template"])
        old = [pod for pod in pods if pod["metadata"]["labels"].get(HASH_LABEL) != current]
        spare = limit - (len(wanted) - sum(is_ready(pod) for pod in pods))
        for pod in sorted(old, key=is_ready):
            if is_ready(pod):
                spare -= 1
            if spare >= 0 or not is_ready(pod):
                self._owned.delete_pod(daemon_set, pod)

    def _report(self, daemon_set: Object, wanted: set[str]) -> None:
        pods = [pod for pod in self._owned.objects(PODS, daemon_set, adopt=False) if is_active(pod)]
        current = template_hash(daemon_set["spec"]["template"])
        placed = [pod for pod in pods if _node_of(pod) in wanted]
        ready = sum(map(is_ready, placed))
        status = {
            "currentNumberScheduled": len(placed),
            "numberMisscheduled": len(pods) - len(placed),
            "desiredNumberScheduled": len(wanted),
            "numberReady": ready,
            "observedGeneration": daemon_set["metadata"]["generation"],
        }
        optional = {
            "updatedNumberScheduled": sum(pod["metadata"]["labels"].get(HASH_LABEL) == current for pod in placed),
            "numberAvailable": ready,
            "numberUnavailable": len(wanted) - ready,
        }
        self._owned.set_status(daemon_set, status | {field: count for field, count in optional.items() if count})


def _named(spec: Object, nodes: Sequence[Object], *effects: str) -> set[str]:
    """Return the names of the nodes whose taints of these effects the spec tolerates."""
    return {node["metadata"]["name"] for node in nodes if node_fit.is_tolerated(spec, node, effects)}


def _tolerant(template: Object) -> Object:
    """Return a copy of the template with the tolerations of all daemons, and the label that names its version."""
    version = template_hash(template)
    template = copy.deepcopy(template)
    added = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    template["spec"]["tolerations"] = [*(template["spec"].get("tolerations") or []), *added]
    template["metadata"]["labels"] = (template["metadata"].get("labels") or {}) | {HASH_LABEL: version}
    return template


def _for_node(template: Object, node: str) -> Object:
    """Return a copy of the template whose required node affinity is this node alone."""
    template = copy.deepcopy(template)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = template["spec"].get("affinity") or {}
    node_affinity = (affinity.get("nodeAffinity") or {}) | {"requiredDuringSchedulingIgnoredDuringExecution": required}
    template["spec"]["affinity"] = affinity | {"nodeAffinity": node_affinity}
    return template


def _node_of(pod: Object) -> str:
    """Return the node on which a pod is, or for which it was made."""
    if pod["spec"].get("nodeName"):
        return str(pod["spec"]["nodeName"])
    for term in node_fit.required_terms(pod["spec"]) or []:
        for field in term.get("matchFields") or []:
            return str(field["values"][0])
    return ""


def _limit(value: Any, whole: int) -> int:
    """Return how many pods may be missing; a share is rounded up."""
    return math.ceil(int(value.removesuffix("%")) * whole / 100) if isinstance(value, str) else int(value)
