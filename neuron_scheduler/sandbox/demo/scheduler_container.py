"""
What a container of our image is told in a pod, and what the process on this machine is told in its place.

Arguments, environment and mounted ConfigMaps are the pod's. Different are the API server, the ports (free ones on
127.0.0.1, as several pods share this machine) and everything that needs a certificate or token.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from neuron_scheduler.sandbox.apiserver.store import Object, Store

IMAGE: Final = "neuron-scheduler"
_LOOPBACK: Final = "127.0.0.1"
_EXTENDER_ADDRESS: Final = "--extender-bind-address"


def is_ours(pod: Object) -> bool:
    """Return whether the pod's first container has our image, from whatever registry."""
    image = str(pod["spec"]["containers"][0]["image"])
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0] == IMAGE


@attrs.frozen
class Launch:
    """Arguments and environment of the process, and the port on which it answers probes."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    port: int


def missing_config_maps(pod: Object, store: Store) -> list[str]:
    """Return the names of the ConfigMaps that the pod mounts and that do not exist."""
    namespace = pod["metadata"]["namespace"]
    return [name for name in _mounted(pod).values() if store.get("configmaps", namespace, name) is None]


def launch(pod: Object, store: Store, url: str, folder: Path, *, page: bool = False) -> Launch:
    """Write the mounted ConfigMaps below a folder, and return what to start; with `page` it serves the page, too."""
    container = pod["spec"]["containers"][0]
    words = [*(container.get("command") or [])[1:], *(container.get("args") or [])]
    for number, (mount, name) in enumerate(_mounted(pod).items()):
        config_map = store.get("configmaps", pod["metadata"]["namespace"], name) or {}
        target = folder / str(number)
        target.mkdir(exist_ok=True)
        for file, text in (config_map.get("data") or {}).items():
            (target / Path(file).name).write_text(text)
        words = [word.replace(mount, str(target)) for word in words]
    port = free_port()
    own = [
        f"--master={url}",
        f"--bind-address={_LOOPBACK}",
        f"--port={port}",
        "--secure-port=0",
        "--authorize-metrics=false",
    ]
    if page:
        own += ["--answer-questions=true", "--serve-page=true"]
    if any(word.startswith(_EXTENDER_ADDRESS) for word in words) or words[:1] == ["extender"]:
        own.append(f"{_EXTENDER_ADDRESS}={_LOOPBACK}:{free_port()}")
    return Launch([*words, *own], {**os.environ, **_environment(pod, container)}, port)


def probe_path(pod: Object) -> str:
    """Return the path of the readiness probe."""
    probe = pod["spec"]["containers"][0].get("readinessProbe") or {}
    return str((probe.get("httpGet") or {}).get("path") or "/readyz")


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server((_LOOPBACK, 0)) as listener:
        return int(listener.getsockname()[1])


def _mounted(pod: Object) -> dict[str, str]:
    """Return the ConfigMap's name for each path at which one is mounted."""
    volumes = {
        volume["name"]: volume["configMap"]["name"]
        for volume in pod["spec"].get("volumes") or []
        if (volume.get("configMap") or {}).get("name")
    }
    mounts = pod["spec"]["containers"][0].get("volumeMounts") or []
    return {mount["mountPath"]: volumes[mount["name"]] for mount in mounts if mount["name"] in volumes}


def _environment(pod: Object, container: Mapping[str, Any]) -> dict[str, str]:
    fields = {
        "metadata.name": pod["metadata"]["name"],
        "metadata.namespace": pod["metadata"]["namespace"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "status.podIP": _LOOPBACK,  # where the process really is
    }
    environment = {}
    for variable in container.get("env") or []:
        source = (variable.get("valueFrom") or {}).get("fieldRef") or {}
        environment[variable["name"]] = str(variable.get("value") or fields.get(source.get("fieldPath", ""), ""))
    return environment
