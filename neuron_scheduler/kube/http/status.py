"""
Every answer other than success becomes one `ApiError`, whatever its body.

A proxy or a load balancer uses the same status codes. So a refusal counts only if its body is an API server's Status
(`ApiError.is_status`). A status of success is believed (decision 21).
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.telemetry.errors import ApiError

UNKNOWN_USER: Final = (
    "the API server does not accept our credentials (401); check the user and the token in the kubeconfig;"
    " in a pod: restart it if its ServiceAccount was created again"
)
"""The sentence for a person whose request was answered with 401."""
EXCERPT: Final = 500  # bytes of an error body that is no Status
LONGEST_MESSAGE: Final = 4096  # characters of a Status's message, which may quote an object; longer ones are cut
LONGEST_PAUSE: Final = 15.0  # seconds that a server may ask to wait; more counts as this: a pod is bound within 30

_SECONDS: Final = re.compile(r"[0-9]+")

_STATUS: Final = msgspec.json.Decoder(wire.Status)


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    asked = headers.get("retry-after", "").strip()
    retry_after = min(float(asked), LONGEST_PAUSE) if _SECONDS.fullmatch(asked) else None  # no API server sends a date
    try:
        refusal = _STATUS.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # no Status, not UTF-8, nested too deeply
        return ApiError(status, message=body[:EXCERPT].decode(errors="replace").strip(), retry_after=retry_after)
    return status_error(refusal, status=status, retry_after=retry_after)


def status_error(refusal: wire.Status, *, status: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error that a Status describes (the body of a refusal, or the object of an ERROR event)."""
    details = refusal.details or wire.StatusDetails()
    if retry_after is None and details.retry_after_seconds:
        retry_after = min(max(details.retry_after_seconds, 0.0), LONGEST_PAUSE)
    is_failure = (refusal.api_version, refusal.kind, refusal.status) == ("v1", "Status", "Failure")
    return ApiError(
        status or refusal.code or 500,
        reason=refusal.reason or "",
        message=(refusal.message or "")[:LONGEST_MESSAGE],
        kind=details.kind or "",
        name=details.name or "",
        uid=details.uid or "",
        retry_after=retry_after,
        is_status=is_failure and refusal.code in (None, status or refusal.code),
    )
