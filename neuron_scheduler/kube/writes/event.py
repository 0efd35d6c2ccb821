"""
An Event of `events.k8s.io/v1` on the wire, and the limits of its fields.

Does not depend on when an Event is written: that is for `event_recorder`.
"""

import time
from functools import lru_cache
from typing import Final

from neuron_scheduler.kube.objects.wire import Wire
from neuron_scheduler.model.pod import Pod

NOTE_BYTES: Final = 1024


class Reference(Wire, tag_field="kind", tag="Pod"):
    """An ObjectReference to a pod; empty fields are left out."""

    api_version: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""


class Metadata(Wire):
    """`metadata` of an Event."""

    namespace: str
    name: str


class Repeated(Wire):
    """`series`: how often the Event happened, and when for the last time."""

    count: int
    last_observed_time: str


class Event(Wire, kw_only=True, tag_field="kind", tag="Event"):
    """An Event as it is written."""

    api_version: str
    metadata: Metadata
    event_time: str
    reporting_controller: str
    reporting_instance: str
    type: str
    reason: str
    action: str
    note: str
    regarding: Reference
    related: Reference | None = None
    series: Repeated | None = None


def reference(pod: Pod) -> Reference:
    """Return an ObjectReference to a pod."""
    return Reference("v1", pod.namespace, pod.name, pod.uid, pod.resource_version)


def cut(note: str) -> str:
    """Return the note in at most 1024 bytes, with ` ...` at its end if it was cut."""
    encoded = note.encode()
    if len(encoded) <= NOTE_BYTES:
        return note
    suffix = " ..."
    return encoded[: NOTE_BYTES - len(suffix)].decode(errors="ignore") + suffix


def micro_time(nanoseconds: int) -> str:
    """Return Unix nanoseconds as a MicroTime: RFC 3339 in UTC, always with six digits of fraction."""
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    return f"{_second(seconds)}.{rest // 1000:06d}Z"


@lru_cache(maxsize=8)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
