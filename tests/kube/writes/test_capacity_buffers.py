"""A CapacityBuffer and its template are created once, read back, and deleted; an API server may not serve them."""

from typing import Any

import pytest

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.writes.capacity_buffers import NOT_SERVED, CapacityBuffers
from neuron_scheduler.kube.writes.machine_order import Asked, Declined, Unsettled, Withdrawn
from neuron_scheduler.kube.writes.placeholder_pod import spec_of
from neuron_scheduler.model.pod import PodCondition
from neuron_scheduler.model.resources import CPU, MEMORY, NEURON_DEVICE
from tests.kube.writes.machine_orders import GI, NAME, order, requests_of
from tests.support.scripted_server import Answer, Scripted, answer, refuse, reset, scripted

TEMPLATES = "/api/v1/namespaces/neuron-scheduler-capacity/podtemplates"
GROUPS = "/apis"
BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/neuron-scheduler-capacity/capacitybuffers"
LABELS = {"neuron-scheduler/placeholder": "true", "neuron-scheduler/requested-by": "my-scheduler"}


def served(*versions: str) -> Answer:
    """Answer with the API groups, of which one has these versions, or is missing."""
    ours = {"name": "autoscaling.x-k8s.io", "versions": [{"version": name} for name in versions]}
    groups = [{"name": "apps", "versions": [{"version": "v1"}]}, *([ours] if versions else [])]
    return answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def stored(kind: str, **metadata: Any) -> Answer:
    """Answer with an object as it is stored."""
    version = "v1" if kind == "PodTemplate" else "autoscaling.x-k8s.io/v1beta1"
    return answer(
        {"kind": kind, "apiVersion": version, "metadata": {"name": NAME, "uid": kind, "labels": LABELS} | metadata}
    )


BETA = served("v1alpha1", "v1beta1")
TEMPLATE, BUFFER = stored("PodTemplate"), stored("CapacityBuffer")
THERE = refuse(409, "AlreadyExists")
NO_GROUP = served()
PAGES = [answer("404 page not found\n", status=404), answer({"kind": "Status"}), answer("<html>")]
"""What a proxy may answer to the question which groups there are."""


async def run(*script: Answer, deed: str, uid: str = "") -> tuple[Any, Scripted]:
    """Ask for a machine, or withdraw it, against a script; return the outcome and the server with its requests."""
    async with scripted(*script) as (server, client):
        buffers = CapacityBuffers(requests=requests_of(client))
        outcome = await (buffers.ask(order()) if deed == "ask" else buffers.withdraw(NAME, uid))
        return outcome, server


async def test_the_requests() -> None:
    """The newest version that is served; the template has the placeholder's spec, the buffer one pod of it."""
    outcome, server = await run(BETA, TEMPLATE, BUFFER, deed="ask")
    assert outcome == Asked("CapacityBuffer")
    group, template, buffer = server.seen
    assert group.path == GROUPS
    assert template.path == TEMPLATES
    assert template.json["template"]["spec"] == spec_of(order())
    assert template.json["metadata"]["labels"] == template.json["template"]["metadata"]["labels"]
    assert buffer.path == BUFFERS
    assert (buffer.json["apiVersion"], buffer.json["kind"]) == ("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    assert buffer.json["spec"] == {"podTemplateRef": {"name": NAME}, "replicas": 1}


@pytest.mark.parametrize(
    ("script", "want", "methods"),
    [
        pytest.param([NO_GROUP], Declined(NOT_SERVED), "GET", id="not served"),
        pytest.param([served("v9")], Declined(NOT_SERVED), "GET", id="no version that is known"),
        pytest.param(
            [BETA, THERE, TEMPLATE, THERE, BUFFER], Asked("CapacityBuffer"), "GET POST GET POST GET", id="there"
        ),
        pytest.param([BETA, TEMPLATE, refuse(403, "Forbidden", "no")], Declined("no"), "GET POST POST", id="no right"),
        pytest.param(
            [BETA, TEMPLATE, THERE, stored("CapacityBuffer", labels={})],
            Unsettled(f"another CapacityBuffer has the name {NAME}"),
            "GET POST POST GET",
            id="somebody else's",
        ),
    ],
)
async def test_what_may_go_wrong_when_asking(script: list[Answer], want: object, methods: str) -> None:
    """What is not served or not allowed is declined with a sentence; what is there is not made twice."""
    outcome, server = await run(*script, deed="ask")
    assert outcome == want
    assert " ".join(request.method for request in server.seen) == methods


@pytest.mark.parametrize(
    ("script", "uid", "kind", "methods"),
    [
        pytest.param([BETA, BUFFER, TEMPLATE, TEMPLATE], "u", Withdrawn, "GET DELETE GET DELETE", id="both"),
        pytest.param(
            [BETA, refuse(404, "NotFound", kind="capacitybuffers", name=NAME), TEMPLATE, TEMPLATE],
            "",
            Withdrawn,
            "GET GET GET DELETE",
            id="no buffer",
        ),
        pytest.param([NO_GROUP, TEMPLATE, TEMPLATE], "", Withdrawn, "GET GET DELETE", id="not served any more"),
        pytest.param([BETA, reset], "u", Unsettled, "GET DELETE", id="no answer"),
        pytest.param([BETA, refuse(403, "Forbidden", "no")], "u", Declined, "GET DELETE", id="no right"),
    ],
)
async def test_what_may_go_wrong_when_withdrawing(script: list[Answer], uid: str, kind: type, methods: str) -> None:
    """The buffer goes first; what is gone needs nothing more."""
    outcome, server = await run(*script, deed="withdraw", uid=uid)
    assert isinstance(outcome, kind), outcome
    assert " ".join(request.method for request in server.seen) == methods


@pytest.mark.parametrize("page", PAGES, ids=["a page", "a Status", "no JSON"])
@pytest.mark.parametrize("deed", ["ask", "withdraw"])
async def test_a_proxy_does_not_know_what_is_served(page: Answer, deed: str) -> None:
    """Its 404 neither declines a request for good, nor leaves a buffer for which an autoscaler buys a machine."""
    outcome, server = await run(page, deed=deed, uid="u")
    assert isinstance(outcome, Unsettled)
    assert [request.method for request in server.seen] == ["GET"]


async def test_what_an_earlier_leader_has_asked_for() -> None:
    """Each template with a buffer is read as a pod that waits; one that cannot be read is left out."""
    metadata = {"name": NAME, "uid": "t", "labels": LABELS, "creationTimestamp": "2026-11-21T08:00:00Z"}
    items = [
        {"metadata": metadata, "template": {"spec": spec_of(order())}},
        {"metadata": metadata, "template": {"spec": {"containers": 7}}},
    ]
    async with scripted(answer({"items": items}), BETA, BUFFER, BUFFER) as (server, client):
        (found,) = await CapacityBuffers(requests=requests_of(client)).found()
    assert server.seen[0].query == {"labelSelector": "neuron-scheduler/placeholder=true"}
    assert [request.path for request in server.seen[1:]] == [GROUPS, f"{BUFFERS}/{NAME}", f"{BUFFERS}/{NAME}"]
    assert (found.scheduled, found.terminating) == (PodCondition("False", "Unschedulable"), False)
    assert (found.name, found.labels, found.created) == (NAME, LABELS, 1_795_248_000.0)
    assert found.requests == {NEURON_DEVICE: 16, CPU: 4001, MEMORY: 8 * GI}


@pytest.mark.parametrize(
    ("script", "want"),
    [
        pytest.param([BETA, refuse(404, "NotFound", kind="capacitybuffers", name=NAME)], (None, False), id="none"),
        pytest.param([NO_GROUP], (None, False), id="none are served any more"),
        pytest.param(
            [BETA, stored("CapacityBuffer", deletionTimestamp="2026-11-21T09:00:00Z")],
            (PodCondition("False", "Unschedulable"), True),
            id="it is being deleted",
        ),
    ],
)
async def test_a_template_without_a_buffer(script: list[Answer], want: object) -> None:
    """A leader that ended between the two, or before both were deleted, has left what nobody buys for."""
    item = {"metadata": {"name": NAME, "uid": "t", "labels": LABELS}, "template": {"spec": spec_of(order())}}
    async with scripted(answer({"items": [item]}), *script) as (_, client):
        (found,) = await CapacityBuffers(requests=requests_of(client)).found()
    assert (found.scheduled, found.terminating) == want


@pytest.mark.parametrize(
    "failure",
    [refuse(403, "Forbidden", "no"), refuse(500, "InternalError"), reset],
    ids=["no right", "it fails", "no answer"],
)
async def test_a_buffer_that_cannot_be_read(failure: Answer) -> None:
    """Whether it is there is not known: the caller decides what to do."""
    item = {"metadata": {"name": NAME, "uid": "t", "labels": LABELS}, "template": {"spec": spec_of(order())}}
    async with scripted(answer({"items": [item]}), BETA, failure) as (_, client):
        with pytest.raises((ApiError, UnreachableError)):
            await CapacityBuffers(requests=requests_of(client)).found()


async def test_a_cluster_with_no_templates() -> None:
    """Nothing more is read."""
    async with scripted(answer({"items": []})) as (server, client):
        assert await CapacityBuffers(requests=requests_of(client)).found() == []
    assert len(server.seen) == 1
