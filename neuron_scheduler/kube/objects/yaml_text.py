"""
YAML of API objects, read as kubectl reads it: dates are texts, and there are no types that JSON has not.

A text is checked event by event before it is loaded. libyaml's loader crashes on deep nesting, and aliases make
gigabytes of a small text.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

DEEPEST: Final = 200
MOST_ALIASED: Final = 1 << 20
"""Characters for which the aliases of a text stand."""
_TAG: Final = "tag:yaml.org,2002:"
_TIMESTAMP: Final = f"{_TAG}timestamp"
_TAGS: Final = ("!", *(f"{_TAG}{name}" for name in ("bool", "float", "int", "map", "null", "seq", "str")))


def json_documents(text: bytes) -> Iterator[bytes]:
    """
    Yield the documents that are not empty, as JSON.

    Raises:
        ValueError: the text is not YAML, is nested too deep, has aliases that stand for too much, or has what JSON has
            not; in one sentence.
    """
    import yaml  # takes 30 ms to import

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check(yaml.parse(text, loader))
        for document in yaml.load_all(text, _without_dates(loader)):
            if document is not None:
                yield msgspec.json.encode(document)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"no YAML{where}: {getattr(error, 'problem', None) or 'it cannot be read'}") from None
    except LookupError:
        raise ValueError("a value does not have the type of its tag") from None
    except TypeError as error:
        raise ValueError(str(error)) from None


def _check(events: Iterator[Any]) -> None:
    import yaml

    read = aliased = 0
    sizes: dict[str, int] = {}
    opened: list[tuple[str | None, int]] = []
    for event in events:
        line = event.start_mark.line + 1
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in _TAGS:
            raise ValueError(f"the tag {tag} in line {line}; leave it out")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise ValueError(f"the alias in line {line} stands for nothing before it")
            read += sizes[event.anchor]
            aliased += sizes[event.anchor]
            if aliased > MOST_ALIASED:
                raise ValueError(f"the aliases up to line {line} stand for too much; write the values out")
        elif isinstance(event, yaml.ScalarEvent):
            read += 1 + len(event.value)
            sizes |= {event.anchor: 1 + len(event.value)} if event.anchor else {}
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, read))
            read += 1
            if len(opened) > DEEPEST:
                raise ValueError(f"more than {DEEPEST} levels in line {line}")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            sizes |= {anchor: read - before} if anchor else {}


def _without_dates(loader: Any) -> Any:
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in loader.yaml_implicit_resolvers.items()
    }
    return type("Loader", (loader,), {"yaml_implicit_resolvers": resolvers})
