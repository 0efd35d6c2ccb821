"""One pod is read as it is now."""

import pytest

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.pod_reads import PodReads
from neuron_scheduler.model.pod import Pod
from tests.control_plane.objects import pod_manifest
from tests.support.scripted_server import answer, refuse, scripted


async def test_a_pod_is_read() -> None:
    """By namespace and name, from no cache."""
    manifest = pod_manifest("p", neuron=2)
    manifest["metadata"].update({"uid": "uid-p", "resourceVersion": "7"})
    async with scripted(answer(manifest)) as (server, client):
        read = await PodReads(client=client).read("default", "p")
    assert isinstance(read, Pod)
    assert (read.uid, read.name) == ("uid-p", "p")
    assert [(seen.method, seen.path, seen.query) for seen in server.seen] == [
        ("GET", "/api/v1/namespaces/default/pods/p", {})
    ]


async def test_a_pod_that_is_not_there() -> None:
    """It does not exist, or it has ended."""
    ended = {**pod_manifest("p"), "status": {"phase": "Failed"}}
    ended["metadata"].update({"uid": "u", "resourceVersion": "7"})
    script = refuse(404, "NotFound", kind="pods", name="p"), answer(ended)
    async with scripted(*script) as (_, client):
        reads = PodReads(client=client)
        assert await reads.read("default", "p") is None
        assert await reads.read("default", "p") is None


async def test_what_cannot_be_read() -> None:
    """A malformed pod is a value; a proxy's page, or a refusal, is an error."""
    broken = {"metadata": {"namespace": "default", "name": "p", "uid": "u", "resourceVersion": "7"}, "spec": 3}
    other = pod_manifest("q")
    other["metadata"].update({"uid": "u", "resourceVersion": "7"})
    async with scripted(answer(broken), answer("<html>"), answer(other), refuse(403, "Forbidden")) as (
        _,
        client,
    ):
        reads = PodReads(client=client)
        assert isinstance(await reads.read("default", "p"), Malformed)
        for error in (UnreachableError, UnreachableError, ApiError):
            with pytest.raises(error):
                await reads.read("default", "p")
