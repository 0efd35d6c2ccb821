"""
Objects that no client could create, as they may be stored all the same: by an older server, a webhook, or a mistake.

They are put into the store past all validation. A scheduler sets them aside, and serves all other pods.
"""

import copy
import uuid
from typing import TYPE_CHECKING, Any, Final

import attrs
import msgspec

from sandbox import fleet
from sandbox.apiserver.resources import BUDGETS, NAMESPACES, NODES, PODS
from sandbox.apiserver.store import Object
from tests.simulation.pod_plans import PodPlan

if TYPE_CHECKING:
    from tests.simulation.world import World

ESCAPE: Final = "\x1b]0;owned\x07\x1b[31m"
_LONG: Final = "9" * 40

PODS_OF: Final[dict[str, tuple[tuple[str, ...], Any]]] = {
    "a pod that asks for a huge number": (("spec", "containers", "limits"), {fleet.DEVICE: _LONG}),
    "a pod that asks for fewer than none": (("spec", "containers", "limits"), {fleet.DEVICE: "-4"}),
    "a pod that asks for no number": (("spec", "containers", "limits"), {fleet.DEVICE: "1.5x"}),
    "a pod with a list as a number": (("spec", "containers", "limits"), {fleet.DEVICE: ["4"]}),
    "a pod with a text as priority": (("spec", "priority"), "high"),
    "a pod with a mapping of tolerations": (("spec", "tolerations"), {"key": "x"}),
    "a pod with a number as selector": (("spec", "nodeSelector"), {"zone": 7}),
    "a pod with control characters": (("metadata", "labels"), {"app": ESCAPE, ESCAPE: "x"}),
    "a pod with a forged allocation": (("metadata", "annotations"), {"AWS_NEURON_IDS": "0,1,-1,x" + ESCAPE}),
    "a pod with a large annotation": (("metadata", "annotations"), {"neuron-scheduler/allocation": "[" * 100_000}),
    "a pod with a text as creation time": (("metadata", "creationTimestamp"), "yesterday"),
}
"""What it is, and which field has which value; `limits` are those of the only container."""
NODES_OF: Final[dict[str, tuple[tuple[str, ...], Any]]] = {
    "a node with words for numbers": (("status", "allocatable"), {"cpu": "many", fleet.DEVICE: "all"}),
    "a node with a huge number": (("status", "allocatable"), {"cpu": "8", "pods": "110", fleet.DEVICE: _LONG}),
    "a node with numbers as labels": (("metadata", "labels"), {"node.kubernetes.io/instance-type": 32}),
    "a node with a number as taint": (("spec", "taints"), [{"key": 7, "effect": "NoSchedule"}]),
    "a node with control characters": (("metadata", "labels"), {"node.kubernetes.io/instance-type": ESCAPE}),
}
OTHERS: Final[dict[str, tuple[str, Object]]] = {
    "a budget with a list as selector": (BUDGETS.storage, {"kind": "PodDisruptionBudget", "spec": {"selector": [1]}}),
    "a namespace with a list of labels": (NAMESPACES.storage, {"kind": "Namespace", "status": {"phase": 7}}),
}
KINDS: Final = (*PODS_OF, *NODES_OF, *OTHERS)
"""What seeds choose from; `hard_cases` have the others."""
NESTED_POD: Final = "a pod with deep fields"
NESTED_NODE: Final = "a node with deep fields"
_DEPTH: Final = 10_000  # the API server takes no more; the decoder follows 9,999 levels in Python 3.13, 998 in 3.11
_DEEP: Final = msgspec.Raw(b'[{"fieldsV1":' + b"[" * _DEPTH + b"]" * _DEPTH + b"}]")
"""JSON as it is: no Python object can be nested so deeply and still be encoded."""
_NESTED: Final[tuple[tuple[str, ...], Any]] = (("metadata", "managedFields"), _DEEP)
PODS_OF[NESTED_POD] = _NESTED
NODES_OF[NESTED_NODE] = _NESTED


@attrs.frozen(kw_only=True)
class Poison:
    """An unreadable object is stored; a pod may be on a node already."""

    at: float
    kind: str
    name: str
    node: str = ""

    def __str__(self) -> str:
        return f"store {self.kind}: {self.name}{f', on {self.node}' if self.node else ''}"

    def done_in(self, world: "World") -> None:
        if self.kind in PODS_OF:
            world.store.put(PODS.storage, self._with(self._pod(), *PODS_OF[self.kind]))
        elif self.kind in NODES_OF:
            node = fleet.node(self.name, "trn1.32xlarge")
            node["metadata"] |= self._identity()
            world.store.put(NODES.storage, self._with(node, *NODES_OF[self.kind]))
        else:
            table, fields = OTHERS[self.kind]
            place = {} if table == NAMESPACES.storage else {"namespace": "default"}
            metadata = {"name": self.name, **place, **self._identity()}
            world.store.put(table, {"apiVersion": "v1", "metadata": metadata, **copy.deepcopy(fields)})

    def _identity(self) -> dict[str, str]:
        return {"uid": str(uuid.uuid4()), "creationTimestamp": "2027-01-15T08:00:00Z"}

    def _pod(self) -> Object:
        pod = PodPlan(name=self.name, devices=(1,)).manifest
        pod["metadata"] |= self._identity()
        pod["spec"] |= {"nodeName": self.node} if self.node else {}
        pod["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        return pod

    @staticmethod
    def _with(obj: Object, path: tuple[str, ...], value: Any) -> Object:
        if path[-1] == "limits":
            obj["spec"]["containers"][0]["resources"]["limits"] = value
        elif isinstance(value, dict) and isinstance(obj[path[0]].get(path[1]), dict):
            obj[path[0]][path[1]] |= value
        else:
            obj[path[0]][path[1]] = value
        return obj


@attrs.frozen(kw_only=True)
class Spoil:
    """A pod becomes unreadable, wherever it is, or readable again."""

    at: float
    name: str
    namespace: str = "default"
    ends: bool = False

    def __str__(self) -> str:
        return f"make pod {self.namespace}/{self.name} {'readable' if self.ends else 'unreadable'}"

    def done_in(self, world: "World") -> None:
        pod = world.registry.get(PODS, self.namespace, self.name)
        spec = {field: value for field, value in pod["spec"].items() if field != "topologySpreadConstraints"}
        bad = {} if self.ends else {"topologySpreadConstraints": {"maxSkew": 1}}
        world.store.put(PODS.storage, pod | {"spec": spec | bad})


@attrs.frozen(kw_only=True)
class RemovePoison:
    """Somebody removes an object past all rules, or it never was there."""

    at: float
    kind: str
    name: str

    def __str__(self) -> str:
        return f"remove {self.kind}: {self.name}"

    def done_in(self, world: "World") -> None:
        table = (
            PODS.storage if self.kind in PODS_OF else NODES.storage if self.kind in NODES_OF else OTHERS[self.kind][0]
        )
        world.store.remove(table, "" if table in {NODES.storage, NAMESPACES.storage} else "default", self.name)
