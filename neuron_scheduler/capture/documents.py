"""
The documents of a YAML or JSON text, as dicts.

People write these files, so anchors are allowed. Refuses what the API server or kubectl would read in another way:
duplicate keys, and aliases that make a small text mean gigabytes.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from neuron_scheduler.kube.objects.yaml_text import check_events, composed, line_of, loaded
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

MOST_BYTES: Final = 3 << 20
"""As the API server limits a request."""
MOST_VALUES: Final = 200_000
"""Values of a document, after its aliases have been replaced."""
DEEPEST: Final = 100
"""Levels of a document; libyaml needs the stack for each."""

_HALF_OF_A_PAIR: Final = re.compile("[\ud800-\udfff]")


def documents(source: str, text: bytes) -> list[dict[str, Any]]:
    """
    Return the documents of a text that are not empty; `source` is its name in errors.

    Raises:
        ConfigurationError: it is too long, neither YAML nor JSON, has duplicate keys, or a document is no object.
    """
    if len(text) > MOST_BYTES:
        raise ConfigurationError(f"{source} has more than {MOST_BYTES >> 20} MiB; name a file with the workload alone")
    try:
        found = _of_json(text) if text.lstrip()[:1] == b"{" else _of_yaml(text)
        _check_values(found)
    except ValueError as error:
        raise ConfigurationError(printable(f"{source}: {error}")) from None
    if not found:
        raise ConfigurationError(f"{source} is empty; write a Job or another workload there")
    return found


def _check_values(found: list[Any]) -> None:
    """Raise ValueError for a document that is no object, is nested too deep, or has a text that is none."""
    for document in found:
        if not isinstance(document, dict):
            raise ValueError(f"{_short(document)} is no object; it needs apiVersion and kind")  # noqa: TRY004 - about a file
    todo: list[tuple[Any, int]] = [(document, 1) for document in found]
    while todo:
        value, level = todo.pop()
        if level > DEEPEST:
            raise ValueError(f"more than {DEEPEST} levels")
        match value:
            case str():
                if _HALF_OF_A_PAIR.search(value):
                    raise ValueError("half of a surrogate pair, which is no character")
            case dict():
                todo += [(part, level + 1) for item in value.items() for part in item]
            case list():
                todo += [(item, level + 1) for item in value]


def _of_json(text: bytes) -> list[Any]:
    try:
        return [json.loads(text, object_pairs_hook=_single_keys)]
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON in line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"no UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ValueError(f"more than {DEEPEST} levels") from None


def _single_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"duplicate key {duplicate}")
    return made


def _of_yaml(text: bytes) -> list[Any]:
    check_events(text, deepest=DEEPEST, aliases=True)
    for node in composed(text):
        _check_node(node)
    return list(loaded(text))


def _check_node(root: Any) -> None:
    """Raise ValueError for a duplicate key, and for aliases that mean too much; `root` is a composed document."""
    import yaml

    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()

    def size(node: Any) -> int:
        known = sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            raise ValueError(f"the alias in line {line_of(node)} contains itself")
        open_nodes.add(id(node))
        total = 1
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
            total += sum(size(key) + size(value) for key, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            total += sum(map(size, node.value))
        if total > MOST_VALUES:
            raise ValueError(f"its aliases stand for more than {MOST_VALUES} values")
        open_nodes.discard(id(node))
        sizes[id(node)] = total
        return total

    if root is not None:
        size(root)


def _check_keys(node: Any) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key.value, str):
            raise ValueError(f"line {line_of(key)}: a key that is no text")  # noqa: TRY004 - about a file
        if key.value in seen and key.value != "<<":
            raise ValueError(f"line {line_of(key)}: duplicate key {key.value}")
        seen.add(key.value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:57]}..."
