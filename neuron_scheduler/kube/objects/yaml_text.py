"""
YAML of API objects, read as kubectl reads it: dates are texts, and there are no types that JSON has not.

A text is checked event by event before it is loaded: libyaml's loader needs the stack for each level, and crashes.
Every error is a ValueError of one sentence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_TAG: Final = "tag:yaml.org,2002:"
_TIMESTAMP: Final = f"{_TAG}timestamp"
_TAGS: Final = ("!", *(f"{_TAG}{name}" for name in ("bool", "float", "int", "map", "null", "seq", "str")))


def check_events(text: bytes, *, deepest: int, aliases: bool) -> None:
    """
    Check a text before it is loaded.

    Raises:
        ValueError: it is not YAML, has more than `deepest` levels, a type that JSON has not, or an alias where none is
            allowed.
    """
    import yaml  # takes 30 ms to import

    depth = 0
    with _said():
        for event in yaml.parse(text, _loader()):
            tag = getattr(event, "tag", None)
            if tag is not None and tag not in _TAGS:
                raise ValueError(f"the tag {tag} in line {line_of(event)}; leave it out")
            if isinstance(event, yaml.AliasEvent) and not aliases:
                raise ValueError(f"an alias in line {line_of(event)}; write the value out")
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > deepest:
                    raise ValueError(f"more than {deepest} levels in line {line_of(event)}")
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1


def composed(text: bytes) -> Iterator[Any]:
    """Yield the documents as nodes with their lines; the text has been checked."""
    import yaml

    with _said():
        yield from yaml.compose_all(text, _loader())


def loaded(text: bytes) -> Iterator[Any]:
    """Yield the documents that are not empty as JSON values; the text has been checked."""
    import yaml

    with _said():
        for document in yaml.load_all(text, _without_dates(_loader())):
            if document is not None:
                yield document


def line_of(item: Any) -> int:
    """Return the line in which an event or a node begins."""
    return int(item.start_mark.line) + 1


@contextmanager
def _said() -> Iterator[None]:
    """Turn the library's errors into sentences."""
    import yaml

    try:
        yield
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise ValueError(f"no YAML{where}: {getattr(error, 'problem', None) or 'it cannot be read'}") from None
    except LookupError:
        raise ValueError("a value does not have the type of its tag") from None


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _without_dates(loader: Any) -> Any:
    """Return the loader, for which a date is a text, as it is for kubectl."""
    resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _TIMESTAMP]
        for first, known in loader.yaml_implicit_resolvers.items()
    }
    return type("Loader", (loader,), {"yaml_implicit_resolvers": resolvers})
