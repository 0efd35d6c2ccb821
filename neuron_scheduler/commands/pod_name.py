"""
Which pod a person means: `NAME`, `NAMESPACE/NAME` or `pod/NAME`, as kubectl takes them.

A name that does not exist is an error with the names that are like it. Does not guess one.
"""

from typing import Final

from neuron_scheduler.capture.capture import Capture
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.line_formats import printable

TYPES: Final = ("pod", "pods", "po")


def named(text: str) -> tuple[str, str]:
    """
    Return the namespace, empty if the text has none, and the name.

    Raises:
        ConfigurationError: it is no pod's name.
    """
    first, slash, name = text.partition("/")
    if not slash:
        first, name = "", text
    elif not first or not name or "/" in name:
        raise ConfigurationError(f"{text!r} is not a pod: write NAME, NAMESPACE/NAME or pod/NAME")
    return ("" if first.lower() in TYPES else first), name


def found(capture: Capture, text: str, namespace: str) -> Pod:
    """
    Return the pod that a text names.

    Raises:
        ConfigurationError: there is none of that name, or it has ended, or cannot be read.
    """
    own_namespace, name = named(text)
    key = f"{own_namespace or namespace}/{name}"
    pod = capture.pods.get(key)
    if pod is not None:
        return pod
    shown = printable(key)
    if key in capture.ended:
        raise ConfigurationError(f"pod {shown} has ended, and holds nothing any more")
    malformed = capture.unreadable.get(key)
    if malformed is not None:
        where = f" on node {malformed.node_name}" if malformed.node_name else ""
        raise ConfigurationError(f"pod {shown}{where} cannot be read: {malformed.reason}")
    similar = capture.similar(key)
    meant = f"; did you mean {' or '.join(map(printable, similar))}?" if similar else ""
    raise ConfigurationError(f"there is no pod {shown}, or it has ended{meant}")
