"""The real kube-scheduler with a configuration of the test's, beside the control plane or in place of its own."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.control_plane.binaries import require
from tests.control_plane.component import Component
from tests.control_plane.server import free_port


def kube_scheduler(
    document: Mapping[str, Any], folder: Path, *flags: str, name: str = "kube-scheduler", v: int = 2
) -> Component:
    """
    Return a kube-scheduler that is not started yet.

    Args:
        document: its KubeSchedulerConfiguration.
        folder: where its files go, NAME.yaml and NAME.log.
        flags: further flags.
        name: tells it from others in that folder.
        v: the verbosity of its log.
    """
    path, port = folder / f"{name}.yaml", free_port()
    path.write_text(json.dumps(document))
    own = [f"--config={path}", "--bind-address=127.0.0.1", f"--secure-port={port}", f"-v={v}"]
    argv = [str(require("kube-scheduler")), *own, *flags]
    return Component(name, argv, f"https://127.0.0.1:{port}/healthz", folder / f"{name}.log")
