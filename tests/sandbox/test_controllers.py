"""An object that a controller cannot read does not stop the others."""

import logging
from typing import Any

import anyio
import pytest

from sandbox.server import ApiServer
from tests.support.patience import PATIENCE


def workload(api_version: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    """A Deployment or a Job of one container."""
    policy = "Never" if kind == "Job" else "Always"
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "example/app:1"}]},
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": {"template": template, **spec}}


async def test_an_unreadable_object_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Here a Job whose status somebody has broken; Deployments still get pods."""
    caplog.set_level(logging.ERROR)
    async with ApiServer(controllers=True, termination_limit=0).serving() as server:
        job = server.create(workload("batch/v1", "Job", "j"))
        server.store.put("jobs", job | {"status": {"conditions": [{}]}})
        for name in ("a", "b"):
            selector = {"matchLabels": {"app": name}}
            server.create(workload("apps/v1", "Deployment", name, selector=selector))
            with anyio.fail_after(PATIENCE):
                while not any(
                    pod["metadata"]["name"].startswith(f"{name}-") for pod in server.store.objects("pods", "default")
                ):
                    await server.store.changed("pods")
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, errors
