"""
YAML of API objects, such as `kubectl get -o yaml` writes, as JSON texts, one for each document.

JSON is a hundred times as fast, so YAML has a limit of its own. Refuses aliases, with which a small text can mean
gigabytes; kubectl writes none.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from neuron_scheduler.errors import ConfigurationError

MOST_BYTES: Final = 64 << 20
DEEPEST: Final = 200
"""Levels of a document; libyaml's own loader needs the stack for each, and crashes."""


def documents(path: str, text: bytes) -> Iterator[bytes]:
    """
    Yield each document of a YAML text as JSON.

    Raises:
        ConfigurationError: the text is too long, is not YAML, or has aliases or values that JSON has not.
    """
    import yaml  # takes 30 ms to import

    if len(text) > MOST_BYTES:
        raise ConfigurationError(f"{path} has more than {MOST_BYTES >> 20} MiB of YAML; write it with `-o json`")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check(yaml.parse(text, loader))
        for document in yaml.load_all(text, loader):
            if document is not None:
                yield msgspec.json.encode(document)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or "no YAML"
        raise ConfigurationError(f"{path} is neither JSON nor YAML{where}: {problem}") from error
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
        raise ConfigurationError(f"{path} has YAML that no object of Kubernetes has: {error}") from error


def _check(events: Iterator[Any]) -> None:
    """Raise ValueError if a document is nested too deep or has an alias."""
    import yaml

    depth = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"an alias in line {line}; write the value out")  # noqa: TRY004 - of a text
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} levels in line {line}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
