"""
The real process leads and binds with a certificate authority like that of EKS.

Needs no control plane, so `make test` can also run it in the image's Python, whose defaults would refuse the authority.
"""

import json
from pathlib import Path

from sandbox.server import ApiServer
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.end_to_end.process import ACQUIRED, BOUND, run_scheduler
from tests.support.certificates import Authority


async def test_a_cluster_with_the_certificates_of_eks(tmp_path: Path) -> None:
    """It lists and watches through aiohttp, and takes the Lease and binds over `http1`."""
    authority = Authority()
    context = authority.issue("127.0.0.1").serving(tmp_path)
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    async with ApiServer(ssl_context=context).serving() as server:
        server.create(node_manifest("n1"))
        server.create(pod_manifest("p", neuron=1))
        async with run_scheduler(_kubeconfig(tmp_path, server.url)) as scheduler:
            await scheduler.line(ACQUIRED)
            await scheduler.line(BOUND)
            assert await scheduler.stop() == 0


def _kubeconfig(folder: Path, url: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": url, "certificate-authority": str(folder / "ca.crt")}}],
        "users": [{"name": "x", "user": {"token": "x"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path
