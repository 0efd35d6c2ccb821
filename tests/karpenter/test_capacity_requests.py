"""
Our scheduler asks the real Karpenter for machines: in each case it buys what the pods need, and no more.

Its limits, the death of a leader, and what is withdrawn are here too, each with Karpenter as the judge.
"""

import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.control_plane.objects import NEURON, create_pod, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane
from tests.end_to_end import rights
from tests.end_to_end.asking import asking, fragment, grant_capacity, placeholders
from tests.end_to_end.process import SchedulerProcess
from tests.end_to_end.workload import all_placed, events_of, ids_of, placed, refused, remove
from tests.karpenter.cloud import PRICES, TYPE, node_pool
from tests.karpenter.karpenter import Karpenter, unschedulable
from tests.karpenter.kubelets import KARPENTERS, NODES

POOL: Final = node_pool("neuron", list(PRICES))
FRAGMENTED: Final = "Fragmentation: "


Asking = Callable[..., AbstractAsyncContextManager[SchedulerProcess]]


@pytest.fixture
async def installed(karpenter_api: RestClient, karpenter_plane: ControlPlane, tmp_path: Path) -> Asking:
    """Return `asking` with the rights of `manifests/`, and with those of the component."""
    await rights.grant(karpenter_api)
    await grant_capacity(karpenter_api)
    token = await karpenter_plane.token_for("kube-system", "neuron-scheduler")
    return partial(asking, karpenter_plane.kubeconfig(tmp_path / "kubeconfig", token=token), tmp_path)


async def waiting(api: RestClient, *names: str, neuron: int = 4, cpu: str = "2", **fields: Any) -> None:
    """Create pods that ask for so many devices each."""
    for name in names:
        await create_pod(api, pod_manifest(name, neuron=neuron, requests={"cpu": cpu, "memory": "1Gi"}, **fields))


async def machines(api: RestClient) -> dict[str, str]:
    """Return the instance types of Karpenter's nodes by name."""
    nodes = (await api.get(NODES, labelSelector=KARPENTERS))["items"]
    return {node["metadata"]["name"]: node["metadata"]["labels"][TYPE] for node in nodes}


async def test_one_machine_for_a_pod_that_fits_by_count(
    karpenter_api: RestClient, karpenter: Karpenter, installed: Asking
) -> None:
    """24 devices are free in pieces, a pod of 4 waits: one machine is bought, and the pod gets its first block."""
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "a", "b")
    async with installed() as scheduler:
        await waiting(karpenter_api, "four")
        four = await placed(karpenter_api, "four")
        assert await machines(karpenter_api) == {four["spec"]["nodeName"]: "trn1.32xlarge"}
        assert ids_of(four) == (0, 1, 2, 3)
        (event,) = await events_of(karpenter_api, "four", "NeuronCapacityRequested")
        assert event["note"] == "Asked the autoscaler for 1 trn1.32xlarge"
        await placeholders(karpenter_api, 0)
        assert await karpenter.bought() == ["trn1.32xlarge"]
        assert await scheduler.stop() == 0


async def test_eight_pods_get_two_machines(karpenter_api: RestClient, karpenter: Karpenter, installed: Asking) -> None:
    """By count 6 of 8 pods fit: Karpenter buys a machine for the other two, and is asked for one more, not for six."""
    await karpenter_api.apply(node_pool("neuron", ["trn1.32xlarge"]))
    await fragment(karpenter_api, "a", "b")
    names = [f"four-{number}" for number in range(8)]
    for name in names:  # all are seen to wait before anybody asks: which of them need machines depends on the others
        await unschedulable(karpenter_api, pod_manifest(name, neuron=4, requests={"cpu": "2", "memory": "1Gi"}))
    async with installed() as scheduler:
        pods = await all_placed(karpenter_api, names)
        where = [pods[name]["spec"]["nodeName"] for name in names]
        assert {name: where.count(name) for name in where} == dict.fromkeys(await machines(karpenter_api), 4)
        await placeholders(karpenter_api, 0)
        assert await karpenter.bought() == ["trn1.32xlarge"] * 2
        assert await scheduler.stop() == 0


async def test_nothing_is_bought_where_no_machine_would_help(
    karpenter_api: RestClient, karpenter: Karpenter, installed: Asking
) -> None:
    """A count that no machine gives, a pod that names its host, and a size for which no machine is large enough."""
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "a", "b")
    async with installed() as scheduler:
        await waiting(karpenter_api, "seven", neuron=7, nodeSelector={TYPE: "trn1.32xlarge"})
        await waiting(karpenter_api, "pinned", nodeSelector={"kubernetes.io/hostname": "a"})
        await waiting(karpenter_api, "hundred", neuron=100)
        for name in ("seven", "pinned", "hundred"):
            await refused(karpenter_api, name)
        await waiting(karpenter_api, "four")  # when it has its machine, the others have been considered
        four = await placed(karpenter_api, "four")
        await placeholders(karpenter_api, 0)
        assert await machines(karpenter_api) == {four["spec"]["nodeName"]: "trn1.32xlarge"}
        assert await karpenter.bought() == ["trn1.32xlarge"]
        assert await scheduler.stop() == 0


async def test_a_request_is_withdrawn_if_its_pod_is_served_otherwise(
    karpenter_api: RestClient, karpenter: Karpenter, installed: Asking
) -> None:
    """Other pods end before Karpenter has bought: the pod takes their devices, and nothing is bought."""
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "a", "b")
    async with installed() as scheduler:
        karpenter.component.send_signal(signal.SIGSTOP)
        await waiting(karpenter_api, "four")
        await placeholders(karpenter_api, 1)
        await remove(karpenter_api, *(f"a-{device}" for device in range(0, 16, 4)))
        assert (await placed(karpenter_api, "four"))["spec"]["nodeName"] == "a"
        await placeholders(karpenter_api, 0)
        karpenter.component.send_signal(signal.SIGCONT)
        assert await karpenter.bought() == []
        assert await scheduler.stop() == 0


@pytest.mark.parametrize("pod_goes", [False, True], ids=["the pod still waits", "the pod has gone"])
async def test_the_next_leader_takes_over_what_was_asked_for(
    *, karpenter_api: RestClient, karpenter: Karpenter, installed: Asking, pod_goes: bool
) -> None:
    """A leader is killed with a request out. Its successor serves the pod with the one machine, or withdraws it."""
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "a", "b")
    async with installed() as leader:
        karpenter.component.send_signal(signal.SIGSTOP)
        await waiting(karpenter_api, "four")
        await placeholders(karpenter_api, 1)
        await leader.kill()
    if pod_goes:
        await remove(karpenter_api, "four")
    else:
        karpenter.component.send_signal(signal.SIGCONT)
        assert await karpenter.bought() == ["trn1.32xlarge"]
        await placeholders(karpenter_api, 1)
    async with installed() as successor:
        await placeholders(karpenter_api, 0)
        if pod_goes:
            karpenter.component.send_signal(signal.SIGCONT)
            assert await karpenter.bought() == []
        else:
            four = await placed(karpenter_api, "four")
            assert await machines(karpenter_api) == {four["spec"]["nodeName"]: "trn1.32xlarge"}
            assert await karpenter.bought() == ["trn1.32xlarge"]
        assert await successor.stop() == 0


async def test_no_more_machines_at_once_than_the_limit(
    karpenter_api: RestClient, karpenter: Karpenter, installed: Asking
) -> None:
    """Three pods of 8 need two machines; with a limit of one, the second is asked for when the first one serves."""
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "a", "b", "c")  # each takes one of them by count
    names = ["eight-0", "eight-1", "eight-2"]
    karpenter.kubelets.boot = anyio.Event()
    async with installed(maxMachines=1) as scheduler:
        await waiting(karpenter_api, *names, neuron=8)
        await karpenter_api.wait_until(NODES, lambda nodes: len(nodes) == 1, labelSelector=KARPENTERS)
        await placeholders(karpenter_api, 0)  # bought, and not ready yet
        await scheduler.until(lambda metrics: metrics['neuron_scheduler_capacity_requests{state="limited"}'] == 1)
        assert await karpenter.bought() == ["trn1.32xlarge"]
        karpenter.kubelets.boot.set()
        await all_placed(karpenter_api, names)
        await placeholders(karpenter_api, 0)
        assert await karpenter.bought() == ["trn1.32xlarge"] * 2
        assert await scheduler.stop() == 0


# What docs/runbook.md says to do if machines do not come, by what keeps them away.
TAINT: Final = {"key": "team", "value": "a", "effect": "NoSchedule"}
ALL: Final = list(PRICES)
IN_VAIN: Final = {
    "limits": (node_pool("neuron", ALL, limits={NEURON: "8"}), node_pool("neuron", ALL, limits={NEURON: "64"}), {}),
    "type": (node_pool("neuron", ["inf2.xlarge"]), POOL, {}),
    "taints": (
        node_pool("neuron", ALL, taints=[TAINT]),
        None,
        {"tolerations": [{"key": "team", "operator": "Exists"}]},
    ),
}


@pytest.mark.parametrize(("pool", "mended", "added"), IN_VAIN.values(), ids=IN_VAIN)
async def test_a_machine_that_does_not_come(
    *,
    karpenter_api: RestClient,
    karpenter: Karpenter,
    installed: Asking,
    pool: Object,
    mended: Object | None,
    added: dict[str, Any],
) -> None:
    """Nothing is bought, and the request ends with an Event; what the runbook says to do brings the machine."""
    await karpenter_api.apply(pool)
    await fragment(karpenter_api, "a", "b")
    async with installed(giveUp="2s") as scheduler:
        await waiting(karpenter_api, "four")
        await events_of(karpenter_api, "four", "NeuronCapacityRequested")
        await events_of(karpenter_api, "four", "NeuronCapacityGivenUp")
        await placeholders(karpenter_api, 0)
        await refused(karpenter_api, "four", saying=FRAGMENTED)
        assert await karpenter.bought() == []
    async with installed() as scheduler:  # the default `giveUp` leaves Karpenter more time than 2 s
        if mended is not None:
            await karpenter_api.apply(mended)
        if added:  # a corrected template makes other pods
            await remove(karpenter_api, "four")
            await waiting(karpenter_api, "four", **added)
        four = await placed(karpenter_api, "four")
        assert await machines(karpenter_api) == {four["spec"]["nodeName"]: "trn1.32xlarge"}
        assert await karpenter.bought() == ["trn1.32xlarge"]
        assert await scheduler.stop() == 0


async def test_a_machine_that_needs_longer_to_join(
    karpenter_api: RestClient, karpenter: Karpenter, installed: Asking
) -> None:
    """It is given up before its node is ready; with a longer `giveUp` the same machine serves the pod."""
    await karpenter_api.apply(POOL)
    await fragment(karpenter_api, "a", "b")
    karpenter.kubelets.boot = anyio.Event()
    async with installed(giveUp="2s"):
        await waiting(karpenter_api, "four")
        await events_of(karpenter_api, "four", "NeuronCapacityGivenUp")
    async with installed(giveUp="10m") as scheduler:
        karpenter.kubelets.boot.set()
        await placed(karpenter_api, "four")
        assert await karpenter.bought() == ["trn1.32xlarge"]
        assert await scheduler.stop() == 0
