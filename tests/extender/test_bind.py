"""What kube-scheduler's bind call does to the cluster, and what it is answered."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import anyio
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.extender import bind as bind_module
from neuron_scheduler.extender.bind import NOT_LEADING
from neuron_scheduler.extender.protocol import ExtenderBindingArgs
from neuron_scheduler.kube.writes.binder import BindOutcome, Bound, Fenced, Gone, Refused
from neuron_scheduler.model.annotations import AWS_NEURON_IDS, NEURON_ALLOC_TIME, NEURON_ALLOCATED
from neuron_scheduler.neuron.core_mask import CoreMask
from tests.controllers.test_binding_cycle import HANG, IN_DOUBT, until
from tests.support.builders import pod
from tests.support.extender_road import Answer, Road, assert_nothing_is_held, call, serving, torus, turns


async def test_a_pod_gets_a_legal_block_with_its_binding() -> None:
    """The annotations are those of our own road; the devices are reported, and the pod is assumed until it is seen."""
    async with serving() as road:
        road.foreign("p", devices=4)
        assert await road.verb.bind(call("p")) == ""
        assert road.tried == ["p"]
        assert road.sent[0][AWS_NEURON_IDS] == "0,1,2,3"
        assert road.sent[0][NEURON_ALLOCATED] == "false"
        assert int(road.sent[0][NEURON_ALLOC_TIME]) > 0
        assert road.allocated_ids == {"p": (0, 1, 2, 3)}
        assert road.cluster.is_assumed("uid-p")
        assert len(road.verb.calls) == 0
        road.confirm("p")
        assert not road.cluster.is_assumed("uid-p")
        assert road.held() == 8


async def test_a_pod_without_neuron_is_bound_plainly() -> None:
    """It gets no allocation, and no report of devices."""
    async with serving() as road:
        road.foreign("p", cpu=1000)
        assert await road.verb.bind(call("p")) == ""
        assert road.sent == [{}]
        assert road.allocated_ids == {}


async def test_a_node_that_does_not_fit_any_more_is_an_error() -> None:
    """Another pod has taken the block: kube-scheduler is told why, and nothing is sent or held."""
    async with serving() as road:
        road.foreign("first", devices=16)
        assert await road.verb.bind(call("first")) == ""
        road.foreign("p", devices=4)
        answer = await road.verb.bind(call("p"))
        assert answer.startswith("node n does not fit any more: ")
        assert "Insufficient aws.amazon.com/neuron" in answer
        assert road.counted == ["bound", "failed"]
        assert road.tried == ["first"]
        assert road.cluster.pod_count == 1


async def test_a_flood_of_bad_calls_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can connect can make them, with names of any length."""
    fields = list[dict[str, str]]()
    monkeypatch.setattr(bind_module, "log", mock.Mock(error=lambda _, **values: fields.append(values)))
    long = "x" * 100_000
    async with serving() as road:
        road.verb.longest_unseen = 0.0
        for _ in range(150):
            assert await road.verb.bind(ExtenderBindingArgs(long, long, long, long))
    assert len(fields) == 100
    assert max(sum(map(len, values.values())) for values in fields) < 2000
    assert road.counted == ["failed"] * 150


BAD_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "another uid": ({"pod_uid": "old"}, "the watch has not shown pod default/p with uid 'old'; try again later"),
    "no uid": ({"pod_uid": ""}, "the watch has not shown pod default/p with uid ''"),
    "a node that we do not know": ({"node": "m"}, 'node "m" not found'),
    "a path": ({"pod_name": "../../nodes"}, "the watch has not shown pod default/../../nodes"),
    "no node": ({"node": ""}, 'node "" not found'),
    "an unknown pod": ({"pod_name": "q", "pod_uid": "uid-q"}, "the watch has not shown pod default/q"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
async def test_a_call_about_nothing_that_we_know(case: str) -> None:
    """The sentence says what is wrong. Without its deletion the devices of an unseen pod would never come free."""
    fields, expected = BAD_CALLS[case]
    async with serving() as road:
        road.foreign("p", devices=1)
        road.verb.longest_unseen = 0.0
        assert expected in await road.verb.bind(call("p", **fields))
        assert road.tried == []
        assert_nothing_is_held(road)


REFUSED_PODS: dict[str, tuple[dict[str, Any], str]] = {
    "terminating": ({"terminating": True}, "pod default/p is being deleted, cannot be assigned to a host"),
    "gated": ({"gates": ("g",)}, "non-empty .spec.schedulingGates"),
    "our own queue's": ({"scheduler_name": "my-scheduler", "gates": ()}, "its own queue; give kube-scheduler's"),
    "both units": ({"cores": 1}, "aws.amazon.com/neuroncore"),
    "a count that no ring has": ({"devices": 7}, "does not support requests for device: 7"),
}


@pytest.mark.parametrize("case", REFUSED_PODS)
async def test_a_pod_that_we_do_not_bind(case: str) -> None:
    """It is not bound, whatever the caller says."""
    fields, expected = REFUSED_PODS[case]
    async with serving() as road:
        road.leads = False  # so that the queue does not take its own pod
        await turns()
        road.foreign("p", **{"devices": 1, **fields})
        road.leads = True
        answer = await road.verb.bind(call("p"))
        assert expected in answer
        assert road.tried == []
        assert len(road.verb.calls) == 0


async def test_a_pod_that_the_watch_has_not_shown_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler's watch may be ahead of ours; here ours still shows a pod of the same name before it."""
    monkeypatch.setattr(bind_module, "_PAUSE", 0.0)
    async with serving() as road:
        road.foreign("p", uid="old", devices=1)
        answer = Answer()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer.of, road, "p")
            await turns()
            assert (answer.text, road.tried) == (None, [])
            road.foreign("p", devices=4)
        assert answer.text == ""
        assert road.sent[0][AWS_NEURON_IDS] == "0,1,2,3"


async def test_a_pod_that_goes_before_it_is_decided() -> None:
    """Indexes are built in between."""
    async with serving() as road:
        road.foreign("p", devices=1)

        def lost(*_: object) -> Iterator[None]:
            road.lose("p")
            yield

        road.verb._warmup = mock.Mock(prepare=lost)
        assert await road.verb.bind(call("p")) == "pod default/p not found: it is gone"
        assert_nothing_is_held(road)


async def test_a_repeated_call_is_a_success() -> None:
    """After the Binding, both before and after the watch shows it; for another node it is an error."""
    async with serving() as road:
        road.foreign("p", devices=4)
        assert await road.verb.bind(call("p")) == ""
        road.nodes.on_added(torus("m"))
        for _ in range(2):
            assert await road.verb.bind(call("p")) == ""
            assert await road.verb.bind(call("p", "m")) == 'pod default/p is already assigned to node "n"'
            road.confirm("p")
        assert road.tried == ["p"]


async def test_a_pod_that_another_process_has_bound() -> None:
    """Without ids that we can read it is no success: its devices are unknown."""
    async with serving() as road:
        road.foreign("p", devices=4, on="n")
        assert "without known Neuron devices" in await road.verb.bind(call("p"))
        road.foreign("plain", on="n")
        assert await road.verb.bind(call("plain")) == ""
        assert road.tried == []


async def test_two_calls_share_one_binding() -> None:
    """Both get its outcome; a call for another node meanwhile is an error."""
    async with serving(outcomes={"p": IN_DOUBT}) as road:
        road.foreign("p", devices=4)
        first, second, third = Answer(), Answer(), Answer()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(first.of, road, "p")
            await until(lambda: road.count("p") > 2)
            tasks.start_soon(second.of, road, "p")
            tasks.start_soon(third.of, road, "p", "m")
            await turns()
            assert third.text == "its Binding to node n has no outcome yet; try again later"
            assert (first.text, second.text) == (None, None)
            road.outcomes["p"] = Bound()
        assert (first.text, second.text) == ("", "")
        assert road.held() == 8


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Refused(403, "forbidden"), "forbidden"),
        (Refused(409, ""), "the API server refused the Binding of default/p"),
        (Gone(), "pod default/p does not wait for a node any more: it is gone, terminating or bound"),
        (Fenced(), "the node or the pod has changed, or this replica may not bind any more; try again"),
    ],
    ids=str,
)
async def test_a_binding_that_fails_leaves_nothing(outcome: BindOutcome, expected: str) -> None:
    """The answer is what the API server said, and the devices are free again for the next pod."""
    async with serving(outcomes={"p": outcome}) as road:
        road.foreign("p", devices=16)
        assert await road.verb.bind(call("p")) == expected
        assert_nothing_is_held(road)
        road.outcomes.clear()
        assert await road.verb.bind(call("p")) == ""


async def test_not_the_leader() -> None:
    """Nothing is decided without the Lease, nor before the loop runs, nor after it has been stopped."""
    road = Road()
    road.foreign("p", devices=1)
    assert not road.verb.may_lead
    assert await road.verb.bind(call("p")) == NOT_LEADING
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(road.scheduler.run)
        await turns()
        assert road.verb.may_lead
        road.leads = False
        assert not road.verb.may_lead
        assert await road.verb.bind(call("p")) == NOT_LEADING
        road.leads = True
        road.scheduler.stop()
        await turns()
        assert await road.verb.bind(call("p")) == NOT_LEADING
    assert_nothing_is_held(road)


async def test_an_api_server_that_hangs_is_not_flooded() -> None:
    """Our own queue would wait behind all these Bindings: two are tried at once, and four such rounds may wait."""
    async with serving(outcomes={"slow": HANG}) as road, anyio.create_task_group() as tasks:
        for number in range(12):
            road.foreign(f"slow{number}")
            tasks.start_soon(Answer().of, road, f"slow{number}")
            await turns()
        assert len(road.verb.calls) == 10
        road.foreign("p")
        assert "too many Bindings wait for the API server" in await road.verb.bind(call("p"))
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("part", ["recheck", "bind", "allocated"])
async def test_an_exception_is_one_calls_error(part: str) -> None:
    """It is counted; a pod that is not bound holds nothing; one that is bound stays bound."""
    async with serving(breaks={part: "p"}) as road:
        road.cluster.nominate("n", Nomination(pod("elsewhere")))
        road.foreign("p", devices=4)
        answer = await road.verb.bind(call("p"))
        assert road.surprises.total() == 1
        assert len(road.verb.calls) == 0
        if part == "allocated":
            assert answer == ""
            assert road.held() == 8
        else:
            assert f"RuntimeError: {part}" in answer
            assert_nothing_is_held(road)
        road.breaks.clear()
        assert await road.verb.bind(call("p")) == ""


async def test_space_that_is_nominated_is_not_given_away() -> None:
    """Pods were evicted for a pod of our own queue of higher priority."""
    async with serving() as road:
        preemptor = pod("own", scheduler_name="my-scheduler", devices=16, priority=10)
        road.cluster.nominate("n", Nomination(preemptor, CoreMask((1 << 32) - 1)))
        road.foreign("p", devices=4)
        assert "does not fit any more" in await road.verb.bind(call("p"))
        road.foreign("q", devices=4, priority=11)
        assert await road.verb.bind(call("q")) == ""
