"""
A Binding on the wire, and which annotations it may carry.

The server merges them into the pod and does not validate them, so they are checked here. Does not send.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from neuron_scheduler.kube.objects.pods import annotations_size
from neuron_scheduler.model.pod import Pod

MOST_ANNOTATIONS: Final = 256 << 10
"""Bytes. With a Binding the server stores more than it accepts otherwise, and then the pod can never start."""

_KEY: Final = re.compile(
    r"(?:(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"(?=.{1,63}$)[a-z0-9](?:[-a-z0-9_.]*[a-z0-9])?",
    re.ASCII,
)


def encode_binding(pod: Pod, node_name: str, annotations: Mapping[str, str]) -> bytes:
    """
    Return the Binding's body.

    The uid is always in it, so that a late repeat never binds another pod of the same name. Without `target.kind` the
    server does not copy topology labels.
    """
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "annotations": annotations}
    target = {"kind": "Node", "name": node_name}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})


@lru_cache(maxsize=64)
def _is_key(name: str) -> bool:
    return _KEY.fullmatch(name.lower()) is not None


def unusable(annotations: Mapping[str, str], *, already: int) -> str:
    """
    Return what is wrong with annotations that are added to `already` bytes of them; empty if nothing.

    The server stores invalid ones too, and then every later update of the pod fails.
    """
    for key in annotations:
        if not _is_key(key):
            return f"annotation key {key!r} is invalid: it must be [prefix/]name"
    size = already + annotations_size(annotations)
    if size > MOST_ANNOTATIONS:
        return f"the pod's annotations would take {size} bytes, and {MOST_ANNOTATIONS} are allowed; remove some"
    return ""
