"""
The API server's Status: every answer other than success becomes one `ApiError`, whatever its body.

A proxy, a load balancer or a captive portal answers with the same status codes. So an answer counts only if its body
says that it is from an API server: a Status (`ApiError.is_status`), or the object (`confirms`).
"""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from neuron_scheduler.errors import ApiError
from neuron_scheduler.kube.objects import wire

UNKNOWN_USER: Final = (
    "the API server does not accept our credentials (401); check the user and the token in the kubeconfig;"
    " in a pod: restart it if its ServiceAccount was created again"
)
"""The sentence for a person whose request was answered with 401."""
EXCERPT: Final = 500  # bytes of an error body that is no Status
LONGEST_MESSAGE: Final = 4096  # characters of a Status's message, which may quote an object; longer ones are cut
LONGEST_REASON: Final = 63
LONGEST_PAUSE: Final = 15.0  # seconds that a server may ask to wait; more counts as this: a pod is bound within 30

_SECONDS: Final = re.compile(r"[0-9]+")
_LONGEST_DATE: Final = 64  # characters

_STATUS: Final = msgspec.json.Decoder(wire.Status)


class _Head(wire.Wire):
    """The fields by which an API object is recognised."""

    api_version: str = ""
    kind: str = ""
    status: msgspec.Raw = msgspec.Raw()


_HEAD: Final = msgspec.json.Decoder(_Head)
_SUCCESS: Final = b'"Success"'


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error for a refused request; headers by name in lower case."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        refusal = _STATUS.decode(body.decode())  # bytes with a damaged name would be read without that field
    except (msgspec.MsgspecError, ValueError, RecursionError):  # no Status, not UTF-8, nested too deeply
        return ApiError(status, message=body[:EXCERPT].decode(errors="replace").strip(), retry_after=retry_after)
    return status_error(refusal, status=status, retry_after=retry_after)


def status_error(refusal: wire.Status, *, status: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error that a Status describes (the body of a refusal, or the object of an ERROR event)."""
    details = refusal.details or wire.StatusDetails()
    is_failure = (refusal.api_version, refusal.kind, refusal.status) == ("v1", "Status", "Failure")
    return ApiError(
        status or refusal.code or 500,
        reason=(refusal.reason or "")[:LONGEST_REASON],
        message=(refusal.message or "")[:LONGEST_MESSAGE],
        kind=details.kind or "",
        name=details.name or "",
        uid=details.uid or "",
        retry_after=retry_after if retry_after is not None else _within(details.retry_after_seconds or None),
        is_status=is_failure and refusal.code in (None, status or refusal.code),
    )


def confirms(body: bytes, kind: str) -> bool:
    """
    Return whether the body of a successful answer is the API server's: an object of this kind, or a Status of success.

    Anything else is no answer, and the outcome is in doubt.
    """
    try:
        head = _HEAD.decode(body)
    except (msgspec.MsgspecError, ValueError):
        return False
    except RecursionError:  # only an API object with a hostile field is nested so deeply
        return True
    if (head.api_version, head.kind) == ("v1", "Status"):
        return bytes(head.status) == _SUCCESS
    return bool(head.api_version) and head.kind == kind


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    if _SECONDS.fullmatch(retry_after.strip()):
        return _within(float(retry_after))
    if len(retry_after) > _LONGEST_DATE:
        return None
    try:
        return _within(parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, TypeError, ArithmeticError, LookupError):  # an invalid date fails in many ways
        return None


def _within(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_PAUSE)
