"""One pod is read at the version of its failure."""

import json
from typing import Any

import pytest

from neuron_scheduler.kube.pod_reads import Failure, failure_of
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from tests.support.scripted_server import Answer, answer, refuse, scripted

POD = Pod(uid="u1", namespace="d", name="p", node_name="n")
REJECTED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected: no device"}


def listed(*pods: Any, kind: str = "PodList") -> Answer:
    return answer({"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": "41"}, "items": list(pods)})


def stored_pod(uid: str = "u1", **status: Any) -> dict[str, Any]:
    """Return a pod as the API server has it, with more fields than are used."""
    return {"metadata": {"uid": uid, "name": "p", "labels": {"a": "b"}}, "spec": {"x": [1]}, "status": status}


@pytest.mark.parametrize(
    ("script", "want"),
    [
        pytest.param(listed(stored_pod(**REJECTED)), Failure(REJECTED["reason"], REJECTED["message"]), id="rejected"),
        pytest.param(listed(stored_pod(phase="Failed")), Failure("", ""), id="failed, without a reason"),
        pytest.param(listed(stored_pod(phase="Succeeded")), None, id="done"),
        pytest.param(listed(stored_pod(phase="Pending")), None, id="well"),
        pytest.param(listed(stored_pod("u2", **REJECTED)), None, id="another pod of that name"),
        pytest.param(listed(), None, id="deleted"),
    ],
)
async def test_what_became_of_it(script: Answer, want: Failure | None) -> None:
    """Only a pod that existed at that version, and had failed, has a failure."""
    async with scripted(script) as (server, client):
        assert await failure_of(client, POD, "41") == want
    (request,) = server.seen
    assert (request.method, request.path) == ("GET", "/api/v1/namespaces/d/pods")
    assert request.query == {
        "fieldSelector": "metadata.name=p",
        "resourceVersion": "41",
        "resourceVersionMatch": "Exact",
    }


async def test_a_user_hides_no_failure() -> None:
    """ManagedFields are as deep as a user likes: deeper than any Python lets the decoder go."""
    text = json.dumps({"kind": "PodList", "items": [stored_pod(**REJECTED)]})
    deep = text.replace('"metadata": {', f'"metadata": {{"managedFields": {"[" * 200_000 + "]" * 200_000}, ', 1)
    async with scripted(answer(deep)) as (_, client):
        assert await failure_of(client, POD, "41") == Failure(REJECTED["reason"], REJECTED["message"])


@pytest.mark.parametrize(
    ("script", "error"),
    [
        pytest.param(refuse(410, "Expired"), ApiError, id="compacted"),
        pytest.param(answer("<html/>"), UnreachableError, id="a proxy's page"),
        pytest.param(answer("[" * 50_000), UnreachableError, id="nested too deeply"),
        pytest.param(answer({"kind": "PodList", "items": [5]}), UnreachableError, id="no pods"),
    ],
)
async def test_what_is_no_answer(script: Answer, error: type[Exception]) -> None:
    """Then the failure is unknown, which is not the same as no failure."""
    async with scripted(script) as (_, client):
        with pytest.raises(error):
            await failure_of(client, POD, "41")
