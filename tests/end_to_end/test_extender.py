"""The real kube-scheduler with the extender entry of `manifests/`, and `neuron-scheduler extender`: a real server."""

import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trustme

from tests.control_plane.objects import create_all, create_node, create_pod, node_manifest, pod_manifest
from tests.control_plane.rest import Object, RestClient
from tests.control_plane.server import ControlPlane, free_port
from tests.end_to_end.kube_scheduler import NAME, run_kube_scheduler
from tests.end_to_end.process import ACQUIRED, SHORT_LEASE, SchedulerProcess, run_scheduler
from tests.end_to_end.workload import (
    PODS,
    add_priority_classes,
    events_of,
    held_cores,
    ids_of,
    kubelets,
    on,
    placed,
    refused,
)

NINE: Final = "0,1,2,3,4,5,6,7,8"
SEVEN: Final = (
    "Instance type trn1.32xlarge does not support requests for device: 7. Please request a different number of devices."
)
SIZES: Final = {"trn1.32xlarge": (1, 1, 4, 4, 8), "inf2.48xlarge": (1, 2, 3, 5), "inf1.6xlarge": (1, 2, 3)}
PATIENCE: Final = 120.0  # seconds for hundreds of pods on a busy machine


def by_default(name: str, **pod: Any) -> Object:
    """Return a pod for the default scheduler."""
    return pod_manifest(name, scheduler_name=NAME, **pod)


@asynccontextmanager
async def extender(account: Path, port: int, *flags: str, command: str = "extender") -> AsyncIterator[SchedulerProcess]:
    """Run a replica that serves the extender protocol on a port, until the block is left."""
    address = f"--extender-bind-address=127.0.0.1:{port}"
    async with run_scheduler(account, address, *flags, command=command) as process:
        yield process


@pytest.fixture
async def road(plane: ControlPlane, account: Path, empty: RestClient) -> AsyncIterator[SchedulerProcess]:
    """Run the extender and a kube-scheduler that calls it; the cluster is empty."""
    port = free_port()
    async with extender(account, port) as process:
        await process.line(ACQUIRED)
        async with run_kube_scheduler(plane, f"http://127.0.0.1:{port}"):
            yield process


async def test_nine_cores_of_an_inf1_6xlarge(road: SchedulerProcess, empty: RestClient) -> None:
    """AWS's sample of nine cores gets cores 0 to 8, and the log has the extension's lines without any flag."""
    await create_node(empty, node_manifest("inf1", "inf1.6xlarge"))
    pod = await placed(empty, "nine", scheduler_name=NAME, neuroncore=9)
    assert pod["metadata"]["annotations"]["AWS_NEURON_IDS"] == NINE
    for line in (
        "POD nine fits in Node:inf1",
        "Filtered nodes: [inf1]",
        "Failed nodes: map[]",
        "Finished Processing Filter Request...",
        "Executing Bind Request!",
        f"Allocated ids for POD nine are: {NINE}",
        "Finished executing Bind Request...",
    ):
        await road.line(line)
    assert ids_of(await placed(empty, "one", scheduler_name=NAME, neuron=1)) == (3,)


async def test_seven_devices_of_a_trn1_are_refused(road: SchedulerProcess, empty: RestClient) -> None:
    """kube-scheduler's FailedScheduling Event has AWS's sentence."""
    await create_node(empty, node_manifest("trn1", "trn1.32xlarge"))
    condition = await refused(empty, "seven", saying="does not support", scheduler_name=NAME, neuron=7)
    assert SEVEN in condition["message"]
    events = await events_of(empty, "seven", "FailedScheduling")  # kube-scheduler may have tried twice already
    assert [event["note"] for event in events if SEVEN not in event["note"]] == []
    await road.line("Failed nodes: map[trn1:Instance type trn1.32xlarge does not support requests for device: 7.")


async def test_blocks_are_aligned_and_the_smallest_is_cut(road: SchedulerProcess, empty: RestClient) -> None:
    """Sets of 4 and 8 are those of AWS's figures, and small pods share a broken block instead of an empty node."""
    await create_node(empty, node_manifest("trn1-a", "trn1.32xlarge"))
    await create_node(empty, node_manifest("trn1-b", "trn1.32xlarge"))
    async with kubelets(empty):
        first = await placed(empty, "eight", scheduler_name=NAME, neuron=8)
        node, eight = first["spec"]["nodeName"], ids_of(first)
        assert eight in (tuple(range(8)), tuple(range(8, 16)))
        for name, count in (("four", 4), ("one", 1), ("one-more", 1)):
            pod = await placed(empty, name, scheduler_name=NAME, neuron=count)
            assert pod["spec"]["nodeName"] == node, "the other node's block of 16 stays whole"
            assert ids_of(pod)[0] % count == 0
        held_cores((await empty.get(PODS))["items"], {"trn1-a": "trn1.32xlarge", "trn1-b": "trn1.32xlarge"})
    await road.line("Allocated ids for POD four are:")


async def test_500_pods_and_a_crash_in_the_middle(plane: ControlPlane, account: Path, empty: RestClient) -> None:
    """No core is given twice when the extender is killed in the middle of 500 pods and started again."""
    types, pods = mixed(500, seed=13)
    await create_all(partial(create_node, empty), (node_manifest(name, kind) for name, kind in types.items()))
    port = free_port()
    async with kubelets(empty):
        async with extender(account, port) as process:
            await process.line(ACQUIRED)
            async with run_kube_scheduler(plane, f"http://127.0.0.1:{port}"):
                await create_all(partial(create_pod, empty), pods)
                await empty.wait_until(PODS, lambda pods: bound(pods) >= 150, within=PATIENCE)
                await process.kill()
                async with extender(account, port) as second:
                    await second.line(ACQUIRED)
                    await empty.wait_until(PODS, lambda pods: bound(pods) == 500, within=PATIENCE)
                    await second.until(lambda metrics: metrics['scheduler_cache_size{type="assumed_pods"}'] == 0)
        held_cores((await empty.get(PODS))["items"], types)


async def test_a_follower_forwards_bindings(plane: ControlPlane, account: Path, empty: RestClient) -> None:
    """kube-scheduler may call any replica: a follower filters itself and lets the leader bind, also a new leader."""
    await create_node(empty, node_manifest("trn1", "trn1.32xlarge"))
    first, second = free_port(), free_port()
    async with kubelets(empty), extender(account, second, *SHORT_LEASE) as leader:
        await leader.line(ACQUIRED)
        async with extender(account, first, *SHORT_LEASE) as follower:
            await follower.line("Caches are synced")
            async with run_kube_scheduler(plane, f"http://127.0.0.1:{first}"):
                await placed(empty, "one", scheduler_name=NAME, neuron=1)
                await follower.line("POD one fits in Node:trn1")
                await leader.line("Finished executing Bind Request...")
                assert not follower.lines_with("Executing Bind Request!")
                leader.send_signal(signal.SIGKILL)
                await follower.line(ACQUIRED)
                await placed(empty, "two", scheduler_name=NAME, neuron=1)
                await follower.line("Executing Bind Request!")


async def test_over_tls(plane: ControlPlane, account: Path, empty: RestClient, tmp_path: Path) -> None:
    """With client certificates, victims included, the answers are the same."""
    authority, files = (
        trustme.CA(),
        {name: str(tmp_path / name) for name in ("ca", "crt", "key", "client", "client-key")},
    )
    authority.cert_pem.write_to_path(files["ca"])
    for issued, crt, key in (
        (authority.issue_cert("127.0.0.1"), "crt", "key"),
        (authority.issue_cert("kube-scheduler@example.com"), "client", "client-key"),
    ):
        issued.cert_chain_pems[0].write_to_path(files[crt])
        issued.private_key_pem.write_to_path(files[key])
    flags = {"tls-cert-file": "crt", "tls-private-key-file": "key", "client-ca-file": "ca"}
    shown = {"caFile": files["ca"], "certFile": files["client"], "keyFile": files["client-key"]}
    await add_priority_classes(empty, high=100)
    await create_node(empty, node_manifest("trn1", "trn1.32xlarge"))
    await create_node(empty, node_manifest("inf2", "inf2.xlarge"))
    port = free_port()
    async with (
        kubelets(empty),
        extender(account, port, *(f"--extender-{flag}={files[name]}" for flag, name in flags.items())) as process,
    ):
        await process.line(ACQUIRED)
        async with run_kube_scheduler(plane, f"https://127.0.0.1:{port}", enableHTTPS=True, tlsConfig=shown):
            condition = await refused(empty, "seven", saying="does not support", scheduler_name=NAME, neuron=7)
            assert SEVEN in condition["message"]
            assert ids_of(await placed(empty, "low", scheduler_name=NAME, neuron=16)) == tuple(range(16))
            high = await placed(empty, "high", scheduler_name=NAME, neuron=8, priorityClassName="high")
            assert (high["spec"]["nodeName"], ids_of(high)) == ("trn1", tuple(range(8)))
            await process.line("Chose victims for kube-scheduler")


def mixed(count: int, *, seed: int, scheduler_names: tuple[str, ...] = (NAME,)) -> tuple[dict[str, str], list[Object]]:
    """Return a fleet by node name, and so many pods of all sizes and schedulers that fit on it."""
    dice, pods, sizes = random.Random(seed), [], dict.fromkeys(SIZES, 0)
    for number in range(count):
        kind = dice.choice(list(SIZES))
        size = dice.choice(SIZES[kind])
        sizes[kind] += size
        name = scheduler_names[number % len(scheduler_names)]
        pods.append(pod_manifest(f"pod-{number}", scheduler_name=name, neuron=size, **on(kind)))
    devices = {"trn1.32xlarge": 16, "inf2.48xlarge": 12, "inf1.6xlarge": 4}
    return {
        f"{kind}-{number}": kind for kind in SIZES for number in range(3 * sizes[kind] // (2 * devices[kind]) + 2)
    }, pods


def bound(pods: dict[str, Object]) -> int:
    return sum("nodeName" in pod["spec"] for pod in pods.values())
