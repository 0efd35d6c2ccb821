"""What the API server says in place of an object: a refusal becomes one error, whatever its body turned out to be."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from neuron_scheduler.errors import ApiError
from neuron_scheduler.kube import wire

EXCERPT: Final = 500  # bytes of an error body that is no Status
LONGEST_PAUSE: Final = 30.0  # seconds that a server may ask to wait; what is more counts as this

_SECONDS: Final = re.compile(r"[0-9]+")
_LONGEST_DATE: Final = 64  # characters

_STATUS: Final = msgspec.json.Decoder(wire.Status)


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error that a refused request is; headers by name in lower case."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        said = _STATUS.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):  # no Status, not UTF-8, nested too deeply
        return ApiError(status, message=body[:EXCERPT].decode(errors="replace").strip(), retry_after=retry_after)
    return status_error(said, status=status, retry_after=retry_after)


def status_error(said: wire.Status, *, status: int = 0, retry_after: float | None = None) -> ApiError:
    """Return the error that a Status describes (the body of a refusal, or the object of an ERROR event)."""
    details = said.details or wire.StatusDetails()
    return ApiError(
        status or said.code or 500,
        reason=said.reason or "",
        message=said.message or "",
        kind=details.kind or "",
        retry_after=retry_after if retry_after is not None else _within(details.retry_after_seconds or None),
    )


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    if _SECONDS.fullmatch(retry_after.strip()):
        return _within(float(retry_after))
    if len(retry_after) > _LONGEST_DATE:
        return None
    try:
        return _within(parsedate_to_datetime(retry_after).timestamp() - time.time())
    except (ValueError, TypeError, ArithmeticError, LookupError):  # a date that is none fails in many ways
        return None


def _within(seconds: float | None) -> float | None:
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_PAUSE)
