"""
The objects of a text that kubectl printed or a person wrote: JSON or YAML, one object, a list, or several documents.

The items of a list are found in one pass, and are decoded one at a time by whoever reads them. A file is mapped into
memory, not copied.
"""

import mmap
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Encoded
from neuron_scheduler.kube.objects.json_scanner import decode_at_once
from neuron_scheduler.kube.objects.yaml_text import json_documents
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

STDIN: Final = "-"
MOST_YAML: Final = 64 << 20

Text = bytes | mmap.mmap
Kind = tuple[str, str]
"""The group and the kind of an object."""


class _Document(wire.Wire):
    """A list, or one object, of which only the identity is read."""

    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None

    @property
    def known_kind(self) -> Kind:
        """What it says that it is, or, in a list of the API server's own, what its items are."""
        return self.api_version.rpartition("/")[0], self.kind if self.items is None else self.kind.removesuffix("List")


_DOCUMENTS: Final = msgspec.json.Decoder(_Document)


def content(path: str) -> Text:
    """Return the bytes of a file, a pipe, or standard input."""
    try:
        descriptor = sys.stdin.fileno() if path == STDIN else os.open(path, os.O_RDONLY)
        with open(descriptor, "rb", closefd=path != STDIN) as file:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode) and status.st_size:
                return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
            return file.read()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error


def objects(source: str, text: Text) -> Iterator[tuple[Kind, Encoded]]:
    """Yield the objects of a text as JSON, each with its kind; `source` is its name in errors."""
    first = re.match(rb"\s*(\S)", text)
    if first is None:
        raise ConfigurationError(f"{source} is empty")
    documents: Iterable[Text] = (text,) if first[1] == b"{" else _yaml(source, bytes(text))
    for document in documents:
        try:
            found = decode_at_once(document, _DOCUMENTS)
        except msgspec.ValidationError as error:
            raise ConfigurationError(f"{source} is no object and no list of objects: {error}") from error
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"{source} is cut off, or is not JSON: {error}") from error
        if found.items is None:
            yield found.known_kind, bytes(document)
        for item in found.items or ():
            yield _kind(item) or found.known_kind, item


def _yaml(source: str, text: bytes) -> Iterator[bytes]:
    """Yield each document of a YAML text as JSON; JSON is a hundred times as fast, so YAML has a limit of its own."""
    if len(text) > MOST_YAML:
        raise ConfigurationError(f"{source} has more than {MOST_YAML >> 20} MiB of YAML; write it with `-o json`")
    try:
        yield from json_documents(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(printable(f"{source} is neither JSON nor YAML of objects: {error}")) from error


def _kind(item: Encoded) -> Kind | None:
    """Return the kind of an object in a list; None if it does not say it, as in the API server's own lists."""
    try:
        found = decode_at_once(item, _DOCUMENTS)
    except (ValueError, RecursionError):
        return None
    return found.known_kind if found.kind else None
