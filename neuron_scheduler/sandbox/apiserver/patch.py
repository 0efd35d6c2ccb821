"""
Three ways to patch: merge, strategic merge and JSON patch. `server_side_apply.py` is the fourth.

Strategic merge knows the list merge keys of the kinds served here. Nothing here knows about HTTP or storage.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

from neuron_scheduler.sandbox.apiserver.status import StatusError, bad_request, unsupported_media_type

JSON: Final = "application/json-patch+json"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"

# patchMergeKey by field name (struct tags of k8s.io/api/core/v1); lists that are not named here are atomic.
MERGE_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "matchConditions": "name",
    "ports": "containerPort",  # of a Service it is `port`
    "variables": "name",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
# Lists of plain values that are united instead of replaced.
UNITED: Final = frozenset({"finalizers"})


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
    raise unsupported_media_type(f"{JSON}, {MERGE}, {STRATEGIC}, {APPLY}")


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

    The directives `$patch`, `$retainKeys` and those on lists are supported.

    Raises:
        StatusError: 400, an item of a merging list has no merge key.
    """
    if patch.get("$patch") == "replace":
        return {key: copy.deepcopy(value) for key, value in patch.items() if key != "$patch"}
    merged = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        merged = {key: value for key, value in merged.items() if key in patch["$retainKeys"]}
    for key, value in patch.items():
        if key.startswith("$deleteFromPrimitiveList/"):
            field = key.partition("/")[2]
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif key.startswith("$"):
            continue
        elif value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            merged.pop(key, None)
        else:
            merged[key] = _strategic_value(key, merged.get(key), value)
    return merged


def _strategic_value(field: str, current: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return strategic_merge(current, value)
    if isinstance(value, list) and field in UNITED:
        return [*(current or []), *(item for item in value if item not in (current or []))]
    if isinstance(value, list) and field in MERGE_KEYS:
        return _merge_list(field, current or [], value)
    return copy.deepcopy(value)


def merge_key(field: str, items: list[Any]) -> str:
    """Return the key by which a list of this name is merged; empty for an atomic list."""
    key = MERGE_KEYS.get(field, "")
    if field == "ports" and not any(isinstance(item, dict) and key in item for item in items):
        return "port"
    return key


def _merge_list(field: str, current: list[Any], items: list[Any]) -> list[Any]:
    key = merge_key(field, items)
    replace = any(isinstance(item, dict) and item.get("$patch") == "replace" for item in items)
    merged = [] if replace else list(current)
    for item in items:
        if not isinstance(item, dict):
            raise bad_request(f"{field}: expected an object in a list that is merged by {key}")
        if item.get("$patch") == "replace" and key not in item:
            continue
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
    Return the target with a JSON patch applied (RFC 6902).

    Raises:
        StatusError: 400 if it is not a patch, 422 if an operation does not apply or a test fails.
    """
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    document = copy.deepcopy(target)
    for operation in operations:
        try:
            document = _applied(document, operation)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            message = f"the server rejected our request due to an error in our request: {operation}"
            raise StatusError(422, "Invalid", message) from error
    return document


def _applied(document: Any, operation: Mapping[str, Any]) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, copy.deepcopy(operation["value"]))
        case "replace":
            _at(document, path)
            return _add(_remove(document, path), path, copy.deepcopy(operation["value"]))
        case "remove":
            return _remove(document, path)
        case "copy":
            return _add(document, path, copy.deepcopy(_at(document, _pointer(operation["from"]))))
        case "move":
            source = _pointer(operation["from"])
            value = _at(document, source)
            return _add(_remove(document, source), path, value)
        case "test":
            if _at(document, path) != operation["value"]:
                raise ValueError(f"testing value {operation['path']} failed")
            return document
        case other:
            raise ValueError(f"unknown operation {other}")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise ValueError(f"{text} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]


def _at(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _at(document, path[:-1])
    if not isinstance(parent, list):
        parent[path[-1]] = value
    elif path[-1] == "-":
        parent.append(value)
    else:
        parent.insert(int(path[-1]), value)
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    parent = _at(document, path[:-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document
