"""
What the API server refuses of a write to a claim on devices; it lets two claims have the same device.

After `ValidateResourceClaimStatusUpdate` in `pkg/apis/resource/validation/validation.go`.
"""

from collections.abc import Iterator

from sandbox.apiserver.metadata import validate
from sandbox.apiserver.status import FieldError, forbidden_value, invalid_value
from sandbox.apiserver.store import Object


def validate_update(claim: Object, old: Object) -> Iterator[FieldError]:
    """Yield forbidden changes: of the spec, of devices that it has, and reservations without devices or at its end."""
    yield from validate(claim["metadata"])
    if claim["spec"] != old["spec"]:
        yield invalid_value("spec", claim["spec"], "field is immutable")
    new, before = claim.get("status") or {}, old.get("status") or {}
    allocation, users = new.get("allocation"), new.get("reservedFor") or []
    if users and not allocation:
        yield forbidden_value("status.reservedFor", "may not be specified when `allocated` is not set")
    if allocation and before.get("allocation") not in (None, allocation):
        yield invalid_value("status.allocation", allocation, "field cannot be modified once set")
    if "deletionTimestamp" in old["metadata"] and any(user not in (before.get("reservedFor") or []) for user in users):
        why = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
        yield forbidden_value("status.reservedFor", why)
