"""
Read the object in the API server's answer to a request of ours, however deep its `managedFields` are.

Users choose how deep: the decoder gives up about a thousand levels deep (Python 3.13: ten thousand). A pod that cannot
be read back would have a Binding in doubt for ever, and a claim that cannot be read would keep its pod pending. Refuses
to say what an answer means that cannot be read.
"""

from typing import Final, TypeVar

import msgspec

from neuron_scheduler.kube.objects import pod_wire as wire
from neuron_scheduler.kube.objects.base import without_managed_fields
from neuron_scheduler.kube.objects.json_scanner import finish_with_pauses

T = TypeVar("T")

_POD: Final = msgspec.json.Decoder(wire.PlacedPod)


async def stored_pod(body: bytes) -> wire.PlacedPod:
    """Return the pod; the errors are those of `stored_object`."""
    return await stored_object(body, _POD)


async def stored_object(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """
    Return the object; other tasks run while a deep one is read, which comes without its `managedFields`.

    Raises:
        ValueError: it is not JSON, not such an object (`msgspec.ValidationError`), or something else than its
            `managedFields`, which users may write, is not UTF-8.
        RecursionError: something else than `managedFields` is nested too deeply.
    """
    try:
        return decoder.decode(body.decode())  # bytes with a damaged name would be read without that field
    except (RecursionError, UnicodeDecodeError):
        return decoder.decode((await finish_with_pauses(without_managed_fields(body))).decode())
