"""`/v1/why` explains a pod to those who may get it, without the names of pods that they may not get."""

import pytest

from neuron_scheduler.explain.answers import to_json
from neuron_scheduler.explain.why import explain_pod
from neuron_scheduler.model.pod import Owner
from neuron_scheduler.scheduling.cycle.profile import default_profile
from neuron_scheduler.serving.names import OTHERS_LEFT_OUT
from neuron_scheduler.serving.questions import ASKS_FOR_NONE, NOT_YET
from neuron_scheduler.serving.sources import BESIDE_KUBE_SCHEDULER, STANDBY
from neuron_scheduler.steps import run
from tests.serving.conftest import Desk
from tests.support.builders import node, pod
from tests.support.web_requests import body_of

TRN1 = "trn1.32xlarge"


def fill(desk: Desk) -> None:
    """Put an unknown holder of `secret` on the only node, and let a pod of `a` wait."""
    waits = pod("waits", namespace="a", devices=8, scheduler_name="my-scheduler")
    desk.put([node("n", TRN1)], [pod("u", namespace="secret", devices=1, on="n"), waits])


async def test_why(desk: Desk) -> None:
    """The answer is that of `explain`; only its message, which all readers of the pod see, is without the name."""
    fill(desk)
    waits = desk._pods["a/waits"]
    want = to_json(run(explain_pod(desk.cluster, waits, default_profile("my-scheduler"))))
    assert await desk.json("/v1/why?namespace=a&pod=waits") == want
    assert "secret" not in want["message"]
    assert "secret/u" in str(want["groups"])


async def test_names_of_others(desk: Desk) -> None:
    """A reader of one namespace sees the figures, and no name of another namespace."""
    fill(desk)
    reply = await desk.reply("/v1/why?namespace=a&pod=waits", "jane")
    text = await body_of(reply)
    assert (reply.status, b"a/waits" in text or b"waits" in text) == (200, True)
    assert b"secret" not in text
    assert OTHERS_LEFT_OUT.encode() in text


@pytest.mark.parametrize(
    ("said", "leads", "want"),
    [
        ("Asked the autoscaler for 1 trn1.32xlarge.", True, "Asked the autoscaler for 1 trn1.32xlarge."),
        ("", True, NOT_YET),
        (None, True, ASKS_FOR_NONE),
        ("", False, ""),
    ],
)
async def test_whether_a_machine_is_asked_for(desk: Desk, said: str | None, want: str, *, leads: bool) -> None:
    """A pod that waits because of fragmentation gets a sentence in each case; a standby replica does not know."""
    holders = [pod(f"h{row}", devices=1, on="n", ids=(4 * row,)) for row in range(4)]
    waits = pod("waits", namespace="a", devices=8, scheduler_name="my-scheduler")
    desk.put([node("n", TRN1)], [*holders, waits])
    desk.capacity_request, desk.leads = said, leads
    answer = await desk.json("/v1/why?namespace=a&pod=waits", "jane")
    assert (answer["cause"], answer["capacityRequest"]) == ("fragmentation", want)


async def test_on_one_node(desk: Desk) -> None:
    """What each filter of one node says; a sentence that may name hidden pods is not there."""
    fill(desk)
    seen = await desk.json("/v1/why?namespace=a&pod=waits&node=n", "jane")
    assert [(group["names"], group["plugin"], group["arithmetic"]) for group in seen["groups"]] == [
        (["n"], "NeuronTopology", "")
    ]
    assert await desk.refusal("/v1/why?namespace=a&pod=waits&node=none") == (404, "there is no node none")


async def test_the_name_of_a_job(desk: Desk) -> None:
    """The refusal names its pending pods, to a reader who may get them; those of other namespaces are not of it."""
    desk.put(
        pods=[
            pod(f"train-{number}", namespace=namespace, devices=1, owner=Owner("batch/v1", "Job", "train"))
            for number, namespace in enumerate("aab")
        ]
    )
    status, sentence = await desk.refusal("/v1/why?namespace=a&pod=train", "jane")
    assert (status, sentence.partition("; ")[2]) == (404, "train has 2 pods: a/train-0 and a/train-1")


async def test_who_may_ask(desk: Desk) -> None:
    """The pod must be one that the reader may get; others are refused whether they exist or not."""
    fill(desk)
    for name in ("u", "none"):
        status, sentence = await desk.refusal(f"/v1/why?namespace=secret&pod={name}", "jane")
        assert (status, sentence.startswith("you may not get the pods of namespace secret")) == (403, True)
    assert (await desk.refusal("/v1/why?namespace=a&pod=none", "jane"))[0] == 404
    assert (await desk.refusal("/v1/why?namespace=a&pod=waits", "joe"))[0] == 403


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("", "name the pod"),
        ("pod=waits", "name the pod"),
        ("namespace=a", "name the pod"),
        ("pod=a/x", "name the pod"),
        ("namespace=a&pod=x&pod=y", "is there twice"),
        ("namespace=a&pod=x&nodes=n", "there is no parameter 'nodes'; the parameters are: namespace, node, pod"),
        ("pod", "the query cannot be read"),
        ("pod=%ff/x", "the query cannot be read"),
        ("&".join(f"a{i}=1" for i in range(100)), "the query cannot be read"),
    ],
)
async def test_what_is_asked_wrongly(desk: Desk, query: str, want: str) -> None:
    """The answer says what to write."""
    status, sentence = await desk.refusal(f"/v1/why?{query}")
    assert (status, want in sentence) == (400, True), sentence


async def test_on_standby(desk: Desk) -> None:
    """A replica that decides nothing can still explain, and says what it is."""
    fill(desk)
    desk.leads = False
    assert (await desk.json("/v1/why?namespace=a&pod=waits"))["notes"][0] == STANDBY


async def test_beside_kube_scheduler() -> None:
    """Without a queue of our own, kube-scheduler decides, and the answer says what is not considered."""
    desk = Desk(queued=False)
    fill(desk)
    answers = [await desk.json(target) for target in ("/v1/why?namespace=a&pod=waits", "/v1/fit?devices=8")]
    assert (answers[0]["verdict"], answers[1]["fitting"]) == ("waits", 0)
    assert [BESIDE_KUBE_SCHEDULER in answer["notes"] for answer in answers] == [True, True]
