"""
Three ways to patch: merge, strategic merge, and of JSON patch the operation `add`.

Strategic merge knows the list merge keys of the kinds served here. Nothing here knows about HTTP or storage.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

from sandbox.apiserver.status import StatusError, bad_request, unsupported_media_type

JSON: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

# patchMergeKey by field name (struct tags of k8s.io/api, core/v1 and admissionregistration/v1); other lists are atomic.
MERGE_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "initContainers": "name",
    "matchConditions": "name",
    "ownerReferences": "uid",
    "ports": "containerPort",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
    "variables": "name",
    "volumeMounts": "mountPath",
    "volumes": "name",
}


def patched(target: Any, patch: Any, media_type: str) -> Any:
    """
    Return the target with a patch of this type applied.

    Raises:
        StatusError: 400 or 422, the patch does not apply; 415, there is no such type.
    """
    if media_type == MERGE:
        return merge(target, patch)
    if media_type == STRATEGIC:
        return strategic_merge(target, patch)
    if media_type == JSON:
        return json_patch(target, patch)
    raise unsupported_media_type(f"{JSON}, {MERGE}, {STRATEGIC}")


def merge(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def strategic_merge(target: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the target after a merge that knows lists of named things.

    Of the directives, `$retainKeys` and `$patch: delete` are supported.

    Raises:
        StatusError: 400, an item of a merging list has no merge key.
    """
    merged = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            merged.pop(key, None)
        else:
            merged[key] = _strategic_value(key, merged.get(key), value)
    return merged


def _strategic_value(field: str, current: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return strategic_merge(current, value)
    if isinstance(value, list) and field in MERGE_KEYS:
        return _merge_list(field, current or [], value)
    return copy.deepcopy(value)


def _merge_list(field: str, current: list[Any], items: list[Any]) -> list[Any]:
    key = MERGE_KEYS[field]
    merged = list(current)
    for item in items:
        if not isinstance(item, dict):
            raise bad_request(f"{field}: expected an object in a list that is merged by {key}")
        if key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        place = next((n for n, old in enumerate(merged) if old.get(key) == item[key]), None)
        if item.get("$patch") == "delete":
            if place is not None:
                del merged[place]
        elif place is None:
            merged.append(strategic_merge(None, item))
        else:
            merged[place] = strategic_merge(merged[place], item)
    return merged


def json_patch(target: Any, operations: Any) -> Any:
    """
    Return the target with a JSON patch applied (RFC 6902), all operations of which are `add`.

    Raises:
        StatusError: 400 if it is not a patch, 422 if an operation does not apply or is another one.
    """
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            _add(document, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            message = f"the server rejected our request due to an error in our request: {operation}"
            raise StatusError(422, "Invalid", message) from error
    return document


def _add(document: Any, operation: Mapping[str, Any]) -> None:
    """Add the value at the operation's path, in place."""
    if operation["op"] != "add":
        raise ValueError("the sandbox knows the operation add only")
    _, *steps, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/"))
    for step in steps:
        document = document[int(step)] if isinstance(document, list) else document[step]
    if not isinstance(document, list):
        document[last] = operation["value"]
    elif last == "-":
        document.append(operation["value"])
    else:
        document.insert(int(last), operation["value"])
