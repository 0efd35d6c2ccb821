"""An object that a controller cannot read does not stop the others."""

import logging

import anyio
import pytest

from neuron_scheduler.sandbox import fleet
from neuron_scheduler.sandbox.server import ApiServer
from tests.support.patience import PATIENCE
from tests.support.sandbox_api import pod


async def test_an_unreadable_object_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Here a Job whose status somebody has broken; pods of the default scheduler still get nodes."""
    caplog.set_level(logging.ERROR)
    async with ApiServer(controllers=True, kube_scheduler=True, termination_limit=0).serving() as server:
        container = {"name": "main", "image": "example/batch:1"}
        spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        job = server.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec})
        server.store.put("jobs", job | {"status": {"startTime": 5, "conditions": [{}]}})
        for name in ("a", "b"):
            server.create(fleet.node(name, "m5.xlarge"))
            server.create(pod(name))
            with anyio.fail_after(PATIENCE):
                while (server.store.get("pods", "default", name) or {})["status"]["phase"] != "Running":
                    await server.store.changed("pods")
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, errors
