"""What is offered works: a user's own kubectl obeys the command of each change, and the object is as it says."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from neuron_scheduler.explain.answers import ChangeKind
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.pod import Pod
from sandbox import fleet
from sandbox.server import ApiServer
from tests.control_plane.objects import pod_manifest
from tests.explain.changes.test_search import TRN1, answer, trn1, whole
from tests.support.builders import pod
from tests.support.kubectl import Kubectl


@pytest.mark.parametrize(
    ("kind", "node", "bound", "query", "want"),
    [
        (ChangeKind.DEPARTURE, trn1(), [whole()], ["pods", "--output=name"], "pod/p\n"),
        (
            ChangeKind.UNCORDON,
            trn1(unschedulable=True),
            [],
            ["node", "n", "--output=jsonpath={.spec.unschedulable}"],
            "",
        ),
    ],
)
async def test_kubectl_obeys(
    tmp_path: Path, kind: ChangeKind, node: Node, bound: list[Pod], query: list[str], *, want: str
) -> None:
    """A pod is gone, a cordon is lifted."""
    found, _ = answer([node], bound, pod(devices=4))
    program, *arguments = shlex.split(found[kind].command)
    assert program == "kubectl"
    manifest: dict[str, Any] = fleet.node("n", TRN1)
    if node.unschedulable:
        manifest["spec"]["unschedulable"] = True
    async with ApiServer().serving() as server:
        for each in (manifest, pod_manifest("p", neuron=4), *(pod_manifest(holder.name) for holder in bound)):
            server.create(each)
        kubectl = Kubectl(server.url, tmp_path, server)
        await kubectl(*arguments)
        assert await kubectl("get", *query) == want
