"""
Reads a cluster from files: the output of `kubectl get nodes,pods,... -A -o json` (or yaml), or of `kubectl get --raw`.

The items of a list are found in one pass, and decoded one at a time by the readers of the running process; kinds that
the scheduler does not watch are skipped. A file is mapped into memory, not copied. Refuses files that are larger than a
cluster's objects can be, files that are cut off, and YAML with aliases, which can be small and mean gigabytes.
"""

import mmap
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from neuron_scheduler.capture.collection import Capture, Collection, our_profiles
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.base import Decoded, Encoded, Malformed, Resource
from neuron_scheduler.kube.objects.json_scanner import decoded_at_once
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.yaml_text import check_events, loaded
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.telemetry.errors import ConfigurationError

MOST_BYTES: Final = 1 << 30
"""Of one file; 5,000 nodes and 15,000 pods are about 250 MB."""
MOST_YAML: Final = 64 << 20
DEEPEST: Final = 200
COMMAND: Final = (
    "kubectl get nodes,pods,namespaces,services,replicationcontrollers,replicasets,statefulsets,"
    "poddisruptionbudgets,persistentvolumes,persistentvolumeclaims,storageclasses,csinodes,csidrivers,"
    "csistoragecapacities,volumeattachments -A -o json"
)
"""It writes a file with all that the scheduler watches."""

_HEAD: Final = re.compile(rb'\s*\{\s*"apiVersion"\s*:\s*"([^"\\]*)"\s*,\s*"kind"\s*:\s*"([^"\\]*)"')
_LONGEST_HEAD: Final = 512


class _Head(wire.Wire):
    """What an object is."""

    api_version: str = ""
    kind: str = ""


class _File(wire.Wire):
    """A list, or one object, of which only the identity is read."""

    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None


_HEADS: Final = msgspec.json.Decoder(_Head)
_FILES: Final = msgspec.json.Decoder(_File)


def from_files(paths: Sequence[str], *, profiles: Sequence[Profile] | None = None) -> Capture:
    """
    Return the cluster that the files describe; `-` is standard input.

    Raises:
        ConfigurationError: a file cannot be read, is cut off, or has no objects of a cluster; there is no node.
    """
    newest = max((os.stat(path).st_mtime for path in paths if os.path.isfile(path)), default=0.0)  # noqa: PTH113, PTH116 - no object is needed
    collection = Collection(source=", ".join(paths), taken=newest, profiles=profiles or our_profiles())
    kinds = {(resource.group, resource.kind): resource for resource in collection.resources}
    for path in paths:
        try:
            _read(path, collection, kinds)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}") from error
        except MemoryError:
            raise ConfigurationError(f"{path} needs more memory than there is") from None
    _check(collection)
    return collection.capture()


def _check(collection: Collection) -> None:
    if not collection.has(NODES):
        raise ConfigurationError(f"{collection.source}: there is no node in it; write the file with `{COMMAND}`")
    missing = [resource.name for resource in collection.resources if not collection.has(resource)]
    if PODS.name in missing:
        collection.note("the files have no pods, so every device looks free")
        missing.remove(PODS.name)
    if missing:
        collection.note(
            f"the files have no {', '.join(missing)}; if the cluster has some, answers do not consider them"
        )


def _read(path: str, collection: Collection, kinds: dict[tuple[str, str], Resource[Any]]) -> None:
    text = _content(path)
    first = re.match(rb"\s*(\S)", text)
    if first is None:
        raise ConfigurationError(f"{path} is empty; write it with `{COMMAND}`")
    is_json = first[1] == b"{"
    lists = [_json(path, text)] if is_json else [_json(path, document) for document in _yaml(path, bytes(text))]
    known = 0
    for kind_of_items, items in lists:
        for item in items:
            resource = kinds.get(_kind(item) or kind_of_items)
            known += resource is not None
            if resource is not None:
                collection.add(resource, _decoded(resource, item))
    if not known:
        raise ConfigurationError(f"{path} has no object that the scheduler reads; write it with `{COMMAND}`")


def _content(path: str) -> bytes | mmap.mmap:
    """Return the bytes of a file, a pipe, or standard input."""
    descriptor = sys.stdin.fileno() if path == "-" else os.open(path, os.O_RDONLY)
    with open(descriptor, "rb", closefd=path != "-") as file:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_size:
            _check_size(path, status.st_size)
            return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        text = file.read(MOST_BYTES + 1)
    _check_size(path, len(text))
    return text


def _check_size(path: str, size: int) -> None:
    if size > MOST_BYTES:
        raise ConfigurationError(
            f"{path} has more than {MOST_BYTES >> 20} MiB; write nodes and pods to a file each, and name both"
        )


def _json(path: str, text: bytes | mmap.mmap) -> tuple[tuple[str, str], Iterable[Encoded]]:
    """
    Return the kind that the items of a list have, as far as the list says it, and the items.

    Raises:
        ConfigurationError: the text is not JSON of a list or an object.
    """
    try:
        file = decoded_at_once(text, _FILES)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{path} is no list of objects: {error}; write it with `{COMMAND}`") from error
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"{path} is cut off, or is not JSON: {error}; write it again") from error
    if file.items is None:
        return (_group(file.api_version), file.kind), [bytes(text)]
    return (_group(file.api_version), file.kind.removesuffix("List")), file.items


def _yaml(path: str, text: bytes) -> Iterator[bytes]:
    """
    Yield each document of a YAML text as JSON; JSON is a hundred times as fast, so YAML has a limit of its own.

    Raises:
        ConfigurationError: the text is too long, is not YAML, or has aliases or values that JSON has not.
    """
    if len(text) > MOST_YAML:
        raise ConfigurationError(f"{path} has more than {MOST_YAML >> 20} MiB of YAML; write it with `-o json`")
    try:
        check_events(text, deepest=DEEPEST, aliases=False)
        for document in loaded(text):
            yield msgspec.json.encode(document)
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is neither JSON nor YAML of objects: {error}") from error


def _kind(item: Encoded) -> tuple[str, str] | None:
    """Return the group and kind of an object; None if it does not say them, as in the API server's own lists."""
    version, kind = _kind_of_text(memoryview(item))
    return (_group(version), kind) if kind else None


def _kind_of_text(text: bytes | mmap.mmap | memoryview) -> tuple[str, str]:
    head = _HEAD.match(memoryview(text)[:_LONGEST_HEAD])  # kubectl sorts the fields, so they come first
    if head is not None:
        return head[1].decode(errors="replace"), head[2].decode(errors="replace")
    try:
        known = _HEADS.decode(text)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return "", ""
    return known.api_version, known.kind


def _group(version: str) -> str:
    return version.rpartition("/")[0]


def _decoded(resource: Resource[Any], item: Encoded) -> Decoded[Any]:
    """Return the object; a pod that does not say its namespace is malformed, because its name may not be its own."""
    decoded = resource.decode(item)
    if resource is PODS and decoded.value is not None and "/" not in decoded.key:
        node_name = decoded.value.node_name
        reason = "it has no metadata.namespace"
        return Decoded(decoded.key, decoded.uid, "", Malformed(resource.kind, decoded.key, reason, node_name=node_name))
    return decoded
