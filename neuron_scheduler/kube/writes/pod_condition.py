"""
What the PodScheduled condition of a waiting pod says: its reasons, the key by which messages are compared, its patch.

When it is written is for `condition_writer`.
"""

import re
import time
from typing import Any, Final

import attrs
import msgspec

from neuron_scheduler.model.nomination import KEEP, Clear, Keep, Nominate, NominationChange, change_to
from neuron_scheduler.model.pod import Pod

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"

_COUNTS: Final = re.compile(r"\d+|(?<=[a-z])s\b")
_NAMES: Final = " Unknown ids: "  # the pods that are named after it change often (`scheduling.cycle.neuron_shortage`)
_ENDS: Final = re.compile(r"[,.:;]\s*")


def shape(message: str) -> tuple[str, ...]:
    """
    Return a key that is equal for messages that differ only in their numbers or in the pods that they name.

    The plural goes with the number ("1 node", "2 nodes"). The order of the reasons does not count: they are sorted as
    strings that begin with their count.
    """
    return tuple(sorted(_ENDS.split(_COUNTS.sub("", message.partition(_NAMES)[0]))))


@attrs.frozen
class WaitingStatus:
    """What the status of a waiting pod says, or is to say: its PodScheduled condition and its nominated node."""

    reason: str
    message: str
    nomination: NominationChange = KEEP

    @property
    def shape(self) -> tuple[str, tuple[str, ...], NominationChange]:
        """A key that is equal for statuses that differ only in numbers."""
        return self.reason, shape(self.message), self.nomination


def status_of(pod: Pod, nomination: NominationChange) -> WaitingStatus | None:
    """
    Return what the pod's status says already; None if its condition is absent or not False.

    If `nomination` is KEEP, the node that the status names is left out, so that the two compare equal.
    """
    if pod.scheduled is None or pod.scheduled.status != "False":
        return None
    named = KEEP if nomination == KEEP else change_to(pod.nominated_node_name)
    return WaitingStatus(pod.scheduled.reason, pod.scheduled.message, named)


def encode_patch(pod: Pod, wanted: WaitingStatus, *, now: float, first: bool, version: str = "") -> bytes:
    """
    Return the strategic merge patch of `pods/status`; uid and version in it are preconditions.

    The version is that of `pod`, or `version` if the pod has been read since.

    `lastTransitionTime` changes only with the status, so it is left out when the condition was False before (`first` is
    False): the merge then keeps the old one.
    """
    condition: dict[str, Any] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if pod.observed_generation:
        condition["observedGeneration"] = pod.observed_generation
    if first:
        condition["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    status: dict[str, Any] = {"conditions": [condition]}
    match wanted.nomination:
        case Nominate(node_name=node_name):
            status["nominatedNodeName"] = node_name
        case Clear():
            status["nominatedNodeName"] = None
        case Keep():
            pass
    metadata = {"uid": pod.uid}
    if version or pod.resource_version:
        metadata["resourceVersion"] = version or pod.resource_version
    return msgspec.json.encode({"metadata": metadata, "status": status})
