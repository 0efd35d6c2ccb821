"""
Why a resource cannot be listed or watched, in words for a person, with what to do.

The words are ours: /readyz shows them to everybody, and the text of an answer may be a proxy's page, which is for the
log. Does not judge whether the failure will pass.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.http.status import UNKNOWN_USER

REMEDIES: Final[Mapping[int, str]] = MappingProxyType(
    {
        401: UNKNOWN_USER,
        403: "the right to list or watch it is missing; apply the manifests or the chart again",
        404: "the API server does not serve it; remove what switches it off from kube-apiserver's --runtime-config",
    }
)
"""What is wrong and what to do, by the status of the API server's answer."""
NOT_FOUND: Final = "404 page not found"  # what the API server sends in place of a Status for an unknown path


def hint(error: ApiError | UnreachableError) -> str:
    """Return what is wrong and what to do; empty where that is not known, as after a proxy's page."""
    if not isinstance(error, ApiError) or not (error.is_status or error.message == NOT_FOUND):
        return ""
    return REMEDIES.get(error.status, "")


def in_words(error: ApiError | UnreachableError) -> str:
    """Return why a list or watch failed."""
    if not isinstance(error, ApiError):
        return "no usable answer came; see the log"
    if error.is_status or error.throttled:
        return hint(error) or f"the API server answered {error.status}; see the log"
    return hint(error) or f"the answer {error.status} may be a proxy's; see the log"
