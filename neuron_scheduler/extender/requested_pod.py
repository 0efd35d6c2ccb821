"""
The pod that a request is about, as far as one like it can exist.

Does not judge a pod that the API server would store: what no node can take is answered, and not refused.
"""

from typing import Final

from msgspec import Raw

from neuron_scheduler.extender.protocol import LONGEST_NAME, NULL, MalformedRequestError
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Pod

MOST_POD: Final = 4 << 20
"""Bytes of a pod; the API server takes less."""


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
