"""
Refusals as the API server words them: a `Status` object with a code, a reason and details.

Every refusal of the sandbox is a `StatusError`; nothing else in this package chooses an HTTP status for an error.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from sandbox.apiserver.resources import Resource

# Optimistic locking failed (`OptimisticLockErrorMsg` of the upstream registry).
MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


@attrs.frozen
class FieldError:
    """One cause of a 422: the path of the field, a reason like `FieldValueRequired`, and the message."""

    field: str
    reason: str
    message: str


def required(field: str, detail: str = "") -> FieldError:
    """Return a required field that is missing."""
    return FieldError(field, "FieldValueRequired", "Required value" + (f": {detail}" if detail else ""))


def invalid_value(field: str, value: object, detail: str) -> FieldError:
    """Return a field whose value cannot be accepted."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {detail}")


def forbidden_value(field: str, detail: str) -> FieldError:
    """Return a field that may not be set, or not be changed."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


class StatusError(Exception):
    """
    A refusal: `code` is the HTTP status, the other arguments become the fields of the `Status` body.

    A `retry_after` in seconds is sent as header and in the details.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.retry_after = retry_after
        if retry_after is not None:
            self.details["retryAfterSeconds"] = retry_after

    def body(self) -> dict[str, Any]:
        """Return the `Status` object for the client."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        return status


def success(*, code: int) -> dict[str, Any]:
    """Return the `Status` of a write that returns no object."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _about(resource: Resource, name: str) -> dict[str, Any]:
    details = {"name": name, "kind": resource.plural}
    return details | {"group": resource.group} if resource.group else details


def bad_request(message: str) -> StatusError:
    """Return a 400."""
    return StatusError(400, "BadRequest", message)


def not_found(resource: Resource, name: str) -> StatusError:
    """Return a 404 for an object."""
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', details=_about(resource, name))


def no_such_path() -> StatusError:
    """Return a 404 for a path that names no resource."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def method_not_allowed() -> StatusError:
    """Return a 405."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def already_exists(resource: Resource, name: str) -> StatusError:
    """Return a 409 for a second create."""
    message = f'{resource.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_about(resource, name))


def conflict(resource: Resource, name: str, why: str = MODIFIED, *, subresource: str = "") -> StatusError:
    """Return a 409 for a write that no longer applies; `why` is the text after the colon."""
    suffix = f"/{subresource}" if subresource else ""
    group = f".{resource.group}" if resource.group else ""
    message = f'Operation cannot be fulfilled on {resource.plural}{suffix}{group} "{name}": {why}'
    details = _about(resource, name) | {"kind": f"{resource.plural}{suffix}"}
    return StatusError(409, "Conflict", message, details=details)


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """Return a 403, in the words of admission."""
    message = f'{resource.qualified} "{name}" is forbidden: {why}'
    return StatusError(403, "Forbidden", message, details=_about(resource, name))


def invalid(resource: Resource, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return a 422 with one cause for each field."""
    texts = [f"{error.field}: {error.message}" for error in errors]
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [{"reason": error.reason, "message": error.message, "field": error.field} for error in errors]
    details = {"name": name, "kind": resource.kind, "causes": causes}
    if resource.group:
        details["group"] = resource.group
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {joined}', details=details)


def unsupported_media_type(accepted: str) -> StatusError:
    """Return a 415."""
    message = f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    return StatusError(415, "UnsupportedMediaType", message)


def expired(asked: int, oldest: int) -> StatusError:
    """Return a 410 for a resourceVersion that the history no longer reaches."""
    return StatusError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def expired_continue() -> StatusError:
    """Return a 410 for a page that can no longer be read at the version where the list began."""
    message = (
        "The provided continue parameter is too old to display a consistent list result. "
        "You must start a new list without the continue parameter."
    )
    return StatusError(410, "Expired", message)


def from_the_future(asked: int, current: int) -> StatusError:
    """Return a 504 for a list at a resourceVersion that does not exist yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details={"causes": [cause]}, retry_after=1)
