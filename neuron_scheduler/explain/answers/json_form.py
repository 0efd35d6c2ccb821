"""
The JSON form of the answers of `explain`: one schema for the commands, the process's endpoints and the page.

Names are those of the values in camel case, as everywhere in Kubernetes. Refuses values with mappings: their keys would
be renamed too.
"""

import functools
import re
from typing import Any, Final, TypeVar

import attrs
import msgspec

T = TypeVar("T")

_UNDERSCORE: Final = re.compile(r"_([a-z0-9])")
_CAPITAL: Final = re.compile(r"([A-Z])")


def to_json(answer: attrs.AttrsInstance) -> Any:
    """Return an answer as JSON values: dicts, lists, strings, numbers."""
    return _renamed(msgspec.to_builtins(answer), in_json)


@functools.cache
def in_json(name: str) -> str:
    """Return a field's name as JSON has it: `nodeName` for `node_name`."""
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name)


def from_json(value: Any, answer: type[T]) -> T:
    """
    Return the answer that JSON values hold; fields that are not known here, of a newer version, are ignored.

    Raises:
        msgspec.ValidationError: they are no such answer.
    """
    snake = _renamed(value, lambda key: _CAPITAL.sub(lambda match: f"_{match[1].lower()}", key))
    return msgspec.convert(snake, answer)


def _renamed(value: Any, name: Any) -> Any:
    match value:
        case dict():
            return {name(key): _renamed(item, name) for key, item in value.items()}
        case list() | tuple():
            return [_renamed(item, name) for item in value]
        case _:
            return value
