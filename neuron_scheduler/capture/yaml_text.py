"""
YAML of API objects, such as `kubectl get -o yaml` writes, as JSON texts, one for each document.

JSON is a hundred times as fast, so YAML has a limit of its own. Refuses aliases, with which a small text can mean
gigabytes; kubectl writes none.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.kube.objects.yaml_text import check_events, loaded

MOST_BYTES: Final = 64 << 20
DEEPEST: Final = 200


def documents(path: str, text: bytes) -> Iterator[bytes]:
    """
    Yield each document of a YAML text as JSON.

    Raises:
        ConfigurationError: the text is too long, is not YAML, or has aliases or values that JSON has not.
    """
    if len(text) > MOST_BYTES:
        raise ConfigurationError(f"{path} has more than {MOST_BYTES >> 20} MiB of YAML; write it with `-o json`")
    try:
        check_events(text, deepest=DEEPEST, aliases=False)
        for document in loaded(text):
            yield msgspec.json.encode(document)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is neither JSON nor YAML of objects: {error}") from error
