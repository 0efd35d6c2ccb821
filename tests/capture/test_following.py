"""A cluster that is followed is, after every change, the one that would be read now."""

from random import Random
from typing import Any

import anyio
import pytest

from neuron_scheduler.capture import live
from neuron_scheduler.capture.live import Following, following
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.kube.http.auth import Connection
from neuron_scheduler.kube.http.client import Client
from sandbox.server import ApiServer
from tests.control_plane.objects import node_manifest, pod_manifest
from tests.support.patience import PATIENCE
from tests.support.thoroughness import examples


def rows(cluster: Cluster) -> dict[str, Any]:
    """Return what is known of each node, its pods, and for whom space is kept there."""
    return {
        row.node.name: (row, {uid: info.cores for uid, info in row.pod_infos.items()}, row.nominations)
        for row in cluster.view.rows()
    }


def change(dice: Random, server: ApiServer, number: int) -> None:
    """Add a node or a pod; some pods are nominated to a node in their status."""
    if dice.random() < 0.3:
        server.create(node_manifest(f"n{number}", unschedulable=dice.random() < 0.2))
        return
    first, count = dice.randint(0, 3) * 4, dice.choice((1, 4))
    ids = ",".join(map(str, range(first, first + count)))
    on: dict[str, Any] = {"nodeName": f"n{dice.randint(0, 3)}"} if dice.random() < 0.6 else {}
    pod = pod_manifest(f"p{number}", neuron=count, annotations={"AWS_NEURON_IDS": ids} if on else {}, **on)
    pod["metadata"]["namespace"] = "default"
    if not on and dice.random() < 0.7:
        pod["status"] = {"nominatedNodeName": f"n{dice.randint(0, 3)}"}
    server.create(pod)


async def agree(client: Client, followed: Following) -> None:
    """Wait until what is followed is what would be read."""
    with anyio.fail_after(PATIENCE):
        while True:
            read = rows((await live.read(client)).cluster)
            if rows(followed.current()) == read:
                return
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("seed", range(examples(5)))
async def test_it_is_the_cluster_that_would_be_read(seed: int) -> None:
    """Nodes, pods, what they hold, and the space that is kept."""
    dice = Random(seed)
    async with ApiServer(kubelet=False).serving() as server:
        for number in range(4):
            server.create(node_manifest(f"n{number}"))
        async with Client(connection=Connection(server.url, "a test")) as client, following(client) as followed:
            with anyio.fail_after(PATIENCE):
                await followed.ready()
            await agree(client, followed)
            for number in range(4, 24):
                change(dice, server, number)
                if number % 5 == 0:
                    await agree(client, followed)
            await agree(client, followed)
            assert not followed.is_old
