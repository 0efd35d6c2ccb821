"""`/v1/fit` counts pods that a query or a workload describes."""

import json
from typing import Any

import pytest

from tests.serving.conftest import Desk
from tests.support.builders import node, pod

TRN1 = "trn1.32xlarge"
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "parallelism": 3,
        "template": {
            "spec": {
                "schedulerName": "my-scheduler",
                "containers": [{"name": "c", "resources": {"limits": {"aws.amazon.com/neuron": "8"}}}],
            }
        },
    },
}


@pytest.fixture
def desk() -> Desk:
    """Two machines, one of them half full."""
    desk = Desk()
    held = pod("p", namespace="secret", devices=8, on="n1", ids=range(8))
    desk.put([node("n1", TRN1), node("n2", TRN1)], [held])
    return desk


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("devices=8", (3, 0, 3)),
        ("devices=8&replicas=2", (2, 2, 3)),
        ("devices=8&replicas=5", (3, 5, 3)),
        ("devices=16", (1, 0, 1)),
        ("devices=4,4", (3, 0, 3)),
        ("cores=2", (24, 0, 24)),
        ("devices=1&instanceType=inf2.xlarge", (0, 0, 0)),
        ("devices=1&cpu=100", (2, 0, 2)),
        ("devices=1&namespace=a", (24, 0, 24)),
    ],
)
async def test_a_size(desk: Desk, query: str, want: tuple[int, int, int]) -> None:
    """How many fit, of how many, and how many could."""
    answer = await desk.json(f"/v1/fit?{query}", "jane")
    assert (answer["fitting"], answer["asked"], answer["total"]) == want


async def test_a_workload(desk: Desk) -> None:
    """A body is a workload with its own number of replicas, or another one."""
    body = json.dumps(JOB).encode()
    answer = await desk.json("/v1/fit", body=body)
    assert (answer["name"], answer["asked"], answer["fitting"]) == ("Job train", 3, 3)
    assert (await desk.json("/v1/fit?replicas=9", body=body))["asked"] == 9


async def test_a_workload_of_a_namespace(desk: Desk) -> None:
    """Its affinity is about the pods there, so the reader must be allowed to get them."""
    body = json.dumps(JOB | {"metadata": {"name": "train", "namespace": "secret"}}).encode()
    assert (await desk.refusal("/v1/fit?namespace=a", "jane", body=body))[0] == 403
    assert (await desk.refusal("/v1/fit?devices=1&namespace=secret", "jane"))[0] == 403
    assert (await desk.json("/v1/fit", body=body))["fitting"] == 3


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("preferred", [False, True])
@pytest.mark.parametrize(
    ("term", "status"),
    [
        ({"namespaces": ["secret"]}, 403),
        ({"namespaces": ["a", "secret"]}, 403),
        ({"namespaceSelector": {}}, 403),
        ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, 403),
        ({"namespaces": ["a"]}, 200),
        ({}, 200),
    ],
)
async def test_affinity_to_pods_elsewhere(
    desk: Desk, kind: str, *, preferred: bool, term: dict[str, Any], status: int
) -> None:
    """How many fit would say which labels the pods of another namespace have, and on which nodes they are."""
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname", **term}
    terms = (
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
        if preferred
        else {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    )
    spec = {"affinity": {kind: terms}, "containers": [{"name": "c"}]}
    body = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}).encode()
    assert (await desk.reply("/v1/fit?namespace=a", "jane", body=body)).status == status
    assert (await desk.reply("/v1/fit", body=body)).status == 200


@pytest.mark.parametrize(
    ("target", "body", "want"),
    [
        ("/v1/fit", None, "say what a pod asks for"),
        ("/v1/fit?devices=x", None, "'x' is no number from 1 to 10000"),
        ("/v1/fit?devices=8&replicas=-1", None, "'-1' is no number from 1 to"),
        ("/v1/fit?devices=8&replicas=1e3", None, "is no number"),
        ("/v1/fit?devices=8&buy=2xtrn1.32xlarge", None, "there is no parameter 'buy'"),
        ("/v1/fit?device=8", None, "there is no parameter 'device'"),
        ("/v1/fit?devices=8", b"{}", "there is no parameter 'devices'"),
        ("/v1/fit", b"", "as JSON"),
        ("/v1/fit", b"kind: Job", "as JSON"),
        ("/v1/fit", b"{", "the request is cut off, or is not JSON"),
        ("/v1/fit", b"{}", "the request has no workloads"),
        ("/v1/fit", b'{"kind": "Job", "spec": {"template": 7}}', "the request"),
        ("/v1/fit", b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "no workloads"),
    ],
)
async def test_what_is_asked_wrongly(desk: Desk, target: str, body: bytes | None, want: str) -> None:
    """The answer says what is wrong."""
    status, sentence = await desk.refusal(target, body=body)
    assert (status, want in sentence) == (400, True), sentence


async def test_a_large_body_is_not_read(desk: Desk) -> None:
    """Only readers who may ask have their body read, up to a limit."""
    assert (await desk.reply("/v1/fit", body=b"x" * (129 << 10))).status == 413
    assert (await desk.reply("/v1/fit", "joe", body=b"x" * (129 << 10))).status == 403
