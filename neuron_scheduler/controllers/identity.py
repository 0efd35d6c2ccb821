"""
The name under which this process holds the Lease, which is also in every Binding and in the log.

Refuses a name that is not a pod's.
"""

import os
import re
import socket
import uuid
from typing import Final

from neuron_scheduler.errors import ConfigurationError

_POD_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?", re.ASCII)


def identity() -> str:
    """
    Return a new holder identity for this process: `<name>_<uuid>`.

    The name is that of the pod, from the environment variable POD_NAME (manifests/base/deployment.yaml). Without it the
    hostname is used, which is the pod's name too unless the pod uses the network of its node.

    Raises:
        ConfigurationError: POD_NAME is not the name of a pod.
    """
    name = os.environ.get("POD_NAME", "")
    if name and not _POD_NAME.fullmatch(name):
        raise ConfigurationError(
            f"the environment variable POD_NAME is {name[:64]!a}, which is not the name of a pod; "
            "take it from metadata.name as in manifests/base/deployment.yaml, or unset it"
        )
    return f"{name or socket.gethostname()}_{uuid.uuid4()}"
