"""What the API server says in place of an object: a refusal becomes one error, whatever its body turned out to be."""

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from neuron_scheduler.errors import ApiError
from neuron_scheduler.kube import wire

EXCERPT: Final = 500  # bytes of an error body that is no Status

_STATUS: Final = msgspec.json.Decoder(wire.Status)


def api_error(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error that a refused request is; headers by name in lower case."""
    retry_after = _seconds(headers.get("retry-after"))
    try:
        said = _STATUS.decode(body)
    except msgspec.MsgspecError:
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
        retry_after=retry_after if retry_after is not None else (details.retry_after_seconds or None),
    )


def _seconds(retry_after: str | None) -> float | None:
    if retry_after is None:
        return None
    if retry_after.strip().isdigit():
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None
