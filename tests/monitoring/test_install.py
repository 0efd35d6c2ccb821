"""The commands of docs/runbook.md, on a real API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from tests.control_plane.objects import create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end.process import until
from tests.monitoring.engine import RULES
from tests.support.documented_commands import reader_shell, run_by

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADDRESS = "https://git.example/neuron-scheduler"
RULE = "/apis/monitoring.coreos.com/v1/namespaces/kube-system/prometheusrules/neuron-scheduler"
LEASE = {"metadata": {"name": "my-scheduler", "namespace": "kube-system"}, "spec": {"holderIdentity": "one"}}


def definition(kind: str, plural: str) -> Object:
    """Return a CustomResourceDefinition of the Prometheus operator, without its schema."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.monitoring.coreos.com",
            "annotations": {"api-approved.kubernetes.io": "unapproved, in a test"},
        },
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


@asynccontextmanager
async def prometheus_operator(api: RestClient) -> AsyncIterator[None]:
    """Serve the kinds of the Prometheus operator inside the block."""
    kinds = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
    paths = [f"{CRDS}/{plural}.monitoring.coreos.com" for plural in kinds.values()]
    for kind, plural in kinds.items():
        await api.post(CRDS, definition(kind, plural))
    try:
        for path in paths:
            await until(partial(established, api, path))
        yield
    finally:
        for path in paths:
            await api.delete(path)


async def established(api: RestClient, path: str) -> bool:
    """Return whether a kind is served."""
    conditions = (await api.get(path))["status"]["conditions"] or ()  # null until a controller has seen the definition
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


@pytest.mark.timeout(240)
async def test_the_documented_commands(control_plane: ControlPlane, cluster_api: RestClient, tmp_path: Path) -> None:
    """All of them work for an administrator, and the objects are what the folder has."""
    await create_node(cluster_api, node_manifest("trn1-a"))
    await create_pod(cluster_api, pod_manifest("waits", neuron=7))
    await cluster_api.post("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", LEASE)
    shell = reader_shell(tmp_path, control_plane.kubeconfig(tmp_path / "kubeconfig"))
    blocks = run_by("tests/monitoring/test_install.py::test_the_documented_commands")
    async with prometheus_operator(cluster_api):
        outputs = [
            await shell.run(
                block, replaced={"POD": "waits", "URL": ADDRESS}, code=int("why" in block.text)
            )  # 1: the pod waits
            for block in blocks
        ]
        rule = await cluster_api.get(RULE)
    look, waits, install = outputs
    for name in ("configmap/neuron-scheduler-dashboard", "podmonitor", "prometheusrule"):
        assert name in install
    assert "my-scheduler" in look
    assert "Invalid count" in waits
    linked = RULES.read_text().replace("runbook_url: docs/", f"runbook_url: {ADDRESS}/docs/")
    assert rule["spec"] == yaml.safe_load(linked)["spec"]
