"""
The structures of kube-scheduler's extender protocol, and how they are read and written.

Source: `k8s.io/kube-scheduler/extender/v1/types.go`. The names on the wire are Go's, as the types have no JSON tags.
Nodes come as names: without `nodeCacheCapable: true` kube-scheduler would send tens of megabytes.
"""

from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Pod

T = TypeVar("T", bound="Message | list[HostPriority]")

NULL: Final = Raw(b"null")
MOST_PRIORITY: Final = 10
"""The highest score of a node (`MaxExtenderPriority`)."""
NAMES_ONLY: Final = "set nodeCacheCapable: true in kube-scheduler's configuration, so that it sends the names of nodes"
FORWARDED: Final = "X-Neuron-Scheduler-Forwarded"
"""The header of a request that a replica has passed on to the leader; its value is the replica's identity."""
LONGEST_NAME: Final = 253
"""Characters of a name in Kubernetes; longer ones would fill the log."""
MOST_POD: Final = 4 << 20
"""Bytes of a pod; the API server takes less."""
_LONGEST_REASON: Final = 300


class MalformedRequestError(ValueError):
    """A request's body cannot be read; the text says why."""


class Message(msgspec.Struct, rename="pascal"):
    """The base of all structures here: msgspec takes options by inheritance."""


class ExtenderArgs(Message):
    """The request of `filter` and of `prioritize`; `node_names` is None if kube-scheduler sends whole nodes."""

    pod: Raw = NULL
    node_names: list[str] | None = None


class ExtenderFilterResult(Message):
    """
    The answer to `filter`: the nodes that take the pod, and why the others failed, by name.

    Attributes:
        failed_and_unresolvable_nodes: where evicting pods would not help.
        error: kube-scheduler fails the attempt with this sentence; empty on success.
    """

    node_names: list[str]
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str = ""


class HostPriority(Message):
    """The score of a node, 0 to `MOST_PRIORITY`; the answer to `prioritize` is a list of these."""

    host: str
    score: int


class ExtenderBindingArgs(Message):
    """The request of `bind`."""

    pod_name: str = ""
    pod_namespace: str = ""
    pod_uid: str = msgspec.field(default="", name="PodUID")
    node: str = ""


class ExtenderBindingResult(Message):
    """The answer to `bind`; `error` is empty on success."""

    error: str = ""


class MetaPod(Message):
    """A pod, by its uid."""

    uid: str = msgspec.field(default="", name="UID")


class MetaVictims(Message):
    """Pods to evict from a node; how many of them a disruption budget protects."""

    pods: list[MetaPod] | None = None
    num_pdb_violations: int = msgspec.field(default=0, name="NumPDBViolations")


class ExtenderPreemptionArgs(Message):
    """The request of `preempt`; `node_name_to_meta_victims` is None if kube-scheduler sends whole pods."""

    pod: Raw = NULL
    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class ExtenderPreemptionResult(Message):
    """The answer to `preempt`."""

    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class VerbAnswer(NamedTuple):
    """What is answered: JSON with status 200, with any other a sentence."""

    status: int
    body: bytes


def sentence(status: int, text: str) -> VerbAnswer:
    return VerbAnswer(status, f"{text}\n".encode())


def encode(message: Message | list[HostPriority]) -> bytes:
    return msgspec.json.encode(message)


def decode(text: bytes, kind: type[T]) -> T:
    """
    Return the request or answer of a kind in JSON text.

    Raises:
        MalformedRequestError: the text is not JSON, or not of this kind.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:  # also those of msgspec, and bytes that are not UTF-8
        raise MalformedRequestError(str(error)[:_LONGEST_REASON]) from None


def requested_pod(text: Raw) -> Pod | Malformed | None:
    """
    Return the pod, or why it cannot be read; None if it has ended.

    Raises:
        MalformedRequestError: there is none, or it is larger than a pod can be.
    """
    size = len(memoryview(text))
    if bytes(text) == bytes(NULL):
        raise MalformedRequestError("it has no Pod")
    if size > MOST_POD:
        raise MalformedRequestError(f"Pod has {size} bytes, which is more than a pod can have")
    value = PODS.decode(text).value
    if isinstance(value, Pod) and max(map(len, (value.name, value.namespace, value.uid))) > LONGEST_NAME:
        raise MalformedRequestError(f"Pod has a name or uid of more than {LONGEST_NAME} characters")
    return value
