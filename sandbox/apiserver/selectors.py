"""
Label and field selectors of list and watch, from their text to a predicate over stored objects.

Field labels that the resource does not offer are refused, as on a real API server: a client that relies on more
must notice it.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from sandbox.apiserver.resources import Field, Resource
from sandbox.apiserver.status import StatusError, bad_request
from sandbox.apiserver.store import Object

Predicate: TypeAlias = Callable[[Object], bool]
_Requirement: TypeAlias = Callable[[dict[str, str]], bool]

_KEY = r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]*[A-Za-z0-9])?)"
_SET = re.compile(rf"^{_KEY}\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUAL = re.compile(rf"^{_KEY}\s*(?P<operator>==|!=|=)\s*(?P<value>[-A-Za-z0-9_.]*)$")
_EXISTS = re.compile(rf"^(?P<operator>!?)\s*{_KEY}$")
_COMMA = re.compile(r",(?![^(]*\))")


def everything(_: Object) -> bool:
    """Return True: the empty selector selects every object."""
    return True


def parse(resource: Resource, *, labels: str, fields: str) -> Predicate:
    """
    Return one predicate for both selectors.

    Raises:
        StatusError: 400, the text is not a selector or names a field that is not offered.
    """
    terms = [*_field_terms(resource, fields), *_label_terms(labels)]
    if not terms:
        return everything
    return lambda obj: all(term(obj) for term in terms)


def _label_terms(text: str) -> Iterator[Predicate]:
    for part in _parts(text):
        yield _on_labels(_label_requirement(part))


def _on_labels(holds: _Requirement) -> Predicate:
    return lambda obj: holds(obj["metadata"].get("labels") or {})


def _label_requirement(part: str) -> _Requirement:
    if match := _SET.match(part):
        key, values = match["key"], {value.strip() for value in match["values"].split(",")}
        if match["operator"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(part):
        return _comparison(match["key"], match["operator"], match["value"])
    if match := _EXISTS.match(part):
        key, wanted = match["key"], not match["operator"]
        return lambda labels: (key in labels) is wanted
    raise bad_request(f'unable to parse requirement: found "{part}"')


def _comparison(key: str, operator: str, value: str) -> _Requirement:
    match operator:
        case "!=":
            return lambda labels: labels.get(key) != value
        case _:
            return lambda labels: labels.get(key) == value


def _field_terms(resource: Resource, text: str) -> Iterator[Predicate]:
    for part in _parts(text):
        label, operator, value = _split_field(part)
        field = resource.fields.get(label)
        if field is None:
            raise _not_supported(resource, label)
        yield _on_field(field, value, wanted=operator != "!=")


def _on_field(field: Field, value: str, *, wanted: bool) -> Predicate:
    return lambda obj: (_text_at(obj, field.path, field.absent) == value) is wanted


def _split_field(part: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        label, separator, value = part.partition(operator)
        if separator:
            return label, operator, value
    raise bad_request(f"invalid selector: '{part}'; can't understand '{part}'")


def _not_supported(resource: Resource, label: str) -> StatusError:
    return bad_request(
        f'Unable to find "{resource.api_version}, Resource={resource.plural}" that match field selector: '
        f"field label not supported: {label}"
    )


def _text_at(obj: Object, path: tuple[str, ...], absent: str) -> str:
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if value is None:
        return absent
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in _COMMA.split(text)] if text.strip() else []
