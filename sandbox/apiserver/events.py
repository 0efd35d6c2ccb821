"""
Events: one storage in the words of core/v1, read and written through both APIs.

The two views and their validation follow `pkg/apis/events/v1/conversion.go` and
`pkg/apis/core/validation/events.go`: events.k8s.io/v1 is strict about what a new event must say.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.apiserver import metadata
from sandbox.apiserver.resources import EVENTS, NEW_EVENTS, Resource
from sandbox.apiserver.status import FieldError, bad_request, invalid_value, required
from sandbox.apiserver.store import Object

# events.k8s.io/v1 -> core/v1; every other field has the same name in both.
_STORED_NAMES: Final[Mapping[str, str]] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAMES: Final = {stored: new for new, stored in _STORED_NAMES.items()}
_CORE_BLANKS: Final[Mapping[str, Any]] = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_UNNAMESPACED: Final = ("default", "kube-system")  # where events about objects without namespace may live


def stored_form(resource: Resource, body: Object) -> Object:
    """
    Return the event as it is stored, from either view.

    Raises:
        StatusError: 400, a time that Go's decoder would not read.
    """
    event = {_STORED_NAMES.get(field, field): value for field, value in body.items()} if _is_new(resource) else body
    for path, value in (
        ("eventTime", event.get("eventTime")),
        ("series.lastObservedTime", (event.get("series") or {}).get("lastObservedTime")),
    ):
        if value is not None and not metadata.is_micro_time(value):
            layout = "2006-01-02T15:04:05.000000Z07:00"
            raise bad_request(
                f'Event in version "{resource.version}" cannot be handled as a Event: {path}: '
                f'parsing time "{value}" as "{layout}": cannot parse "{value}"'
            )
    stored = {field: value for field, value in event.items() if value != _CORE_BLANKS.get(field, event)}
    return stored | {"apiVersion": EVENTS.api_version, "kind": EVENTS.kind}


def view(resource: Resource, event: Object) -> Object:
    """Return a stored event in the words of the API that is asked."""
    if _is_new(resource):
        shown = {_NEW_NAMES.get(field, field): value for field, value in event.items()}
        return shown | {"apiVersion": NEW_EVENTS.api_version}
    return {**_CORE_BLANKS, **event}


def validate(resource: Resource, event: Object) -> Iterator[FieldError]:
    """Yield what is wrong with an event, given in stored form: for core/v1 little, unless it is of the new style."""
    yield from metadata.validate(event["metadata"])
    namespace, about = event["metadata"]["namespace"], (event.get("involvedObject") or {}).get("namespace") or ""
    new_style = bool(event.get("eventTime"))
    if not new_style and about != namespace and (about or namespace != "default"):
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")
    if new_style and not about and namespace not in _UNNAMESPACED:
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")
    if new_style:
        yield from _validate_new_style(resource, event)
    if _is_new(resource):
        yield from _validate_strictly(event)


def _validate_new_style(resource: Resource, event: Object) -> Iterator[FieldError]:
    shown = "reportingController" if _is_new(resource) else "reportingComponent"
    controller = event.get("reportingComponent") or ""
    if not controller:
        yield required(shown)
    if error := metadata.qualified_name_error(controller):
        yield invalid_value(shown, controller, error)
    for field in ("reportingInstance", "action", "reason"):
        if not event.get(field):
            yield required(field)
        elif len(event[field].encode()) > 128:
            yield invalid_value(field, "", "can have at most 128 characters")
    if len((event.get("message") or "").encode()) > 1024:
        yield invalid_value("message", "", "can have at most 1024 characters")


def _validate_strictly(event: Object) -> Iterator[FieldError]:
    yield from _validate_series(event.get("series"))
    if not event.get("eventTime"):
        yield required("eventTime")
    if event.get("type") not in {"Normal", "Warning"}:
        yield invalid_value("type", "", f"has invalid value: {event.get('type') or ''}")
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(field):
            yield invalid_value(field, "", "needs to be unset")


def _validate_series(series: Mapping[str, Any] | None) -> Iterator[FieldError]:
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield invalid_value("series.count", "", "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")


def _is_new(resource: Resource) -> bool:
    return resource.group == NEW_EVENTS.group
