"""
`neuron-scheduler usage-maps`: the commands that tell AWS's scheduler extension which devices our pods hold.

The extension remembers the devices in use in annotations of the nodes, which this scheduler does not write. Before the
extension takes over again, the annotations must be right (docs/migrating.md). They are computed from the pods as the
scheduler reads them. If a pod's ids are unknown, everything on its node is written as used. A person reads the commands
and runs them.
"""

import argparse
import shlex
import sys
from collections.abc import Iterator, Sequence
from operator import attrgetter

import anyio

from neuron_scheduler.capture.collection import Collection
from neuron_scheduler.capture.live import list_all
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.kube.http import auth
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Decoded, Malformed
from neuron_scheduler.kube.objects.nodes import ANNOTATED_NODES, NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.node import AnnotatedNode
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.annotations import usage_maps
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.settings.config import settings
from neuron_scheduler.settings.setting import flag
from neuron_scheduler.telemetry.errors import ConfigurationError, NeuronSchedulerError
from neuron_scheduler.telemetry.line_formats import printable
from neuron_scheduler.telemetry.terminal import write_out

PRINTED, FAILED = 0, 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print a kubectl command for each node whose annotations NEURON_DEV_USAGE_MAP and NEURON_CORE_USAGE_MAP"
        " differ from the devices of its pods. Changes nothing; needs the right to list nodes and pods."
    )
    for field in settings():
        if field.name in {"kubeconfig", "master"}:
            about = field.metadata
            parser.add_argument(flag(field.name), metavar=about["metavar"], help=about["help"], default=field.default)


def run(arguments: argparse.Namespace) -> int:
    try:
        write_out("".join(f"{line}\n" for line in anyio.run(lines, arguments.kubeconfig, arguments.master)))
    except ConfigurationError:
        raise
    except NeuronSchedulerError as error:
        sys.stderr.write(f"neuron-scheduler: the cluster cannot be read: {error}\n")
        return FAILED
    return PRINTED


async def lines(kubeconfig: str, master: str) -> list[str]:
    """Return the lines of the output: comments and commands."""
    connection = await auth.load(kubeconfig or None, master or None)
    async with Client(connection=connection) as client:
        nodes = await list_all(client, ANNOTATED_NODES)
        # After the nodes: a pod on a node that came in between is left out.
        pods = await list_all(client, PODS)
    return list(_lines(nodes, pods))


def _lines(nodes: Sequence[Decoded[AnnotatedNode]], pods: Sequence[Decoded[Pod]]) -> Iterator[str]:
    annotated = sorted((n.value for n in nodes if isinstance(n.value, AnnotatedNode)), key=attrgetter("name"))
    cluster = _cluster(annotated, pods)
    rows = [(node, row, row.machine) for node in annotated if (row := cluster.node(node.name)) is not None]
    serving = [(node, row, machine) for node, row, machine in rows if machine is not None]
    commands = [line for node, row, machine in serving for line in _of_node(node, row, machine)]
    different = sum(not line.startswith("#") for line in commands)
    yield f"# {len(serving)} nodes with Neuron; the usage maps of {different} differ from what their pods hold"
    for value in (*(node.value for node in nodes), *(pod.value for pod in pods)):
        if isinstance(value, Malformed):
            yield _comment(f"{value.kind} {value.key} cannot be read: {value.reason}")
    yield from commands


def _cluster(nodes: Sequence[AnnotatedNode], pods: Sequence[Decoded[Pod]]) -> Cluster:
    """Return the cluster as the scheduler keeps it: the bound pods that have not ended, terminating ones included."""
    collection = Collection(taken=0.0)
    for node in nodes:
        collection.add(NODES, Decoded(node.name, node.node.uid, "", node.node))
    for pod in pods:
        collection.add(PODS, pod)
    return collection.capture().cluster


def _of_node(node: AnnotatedNode, row: NodeInfo, machine: Machine) -> Iterator[str]:
    held = machine.all_cores & ~row.neuron_usage.free
    for pod_info in row.pod_infos.values():
        if pod_info.cores is None:
            held = machine.all_cores
            yield _comment(
                f"node {node.name}: all is written as used, because the ids of pod {pod_info.pod.key} are unknown"
                f" ({pod_info.problem}); run this command again when that pod has ended"
            )
    maps = usage_maps(machine, held)
    if maps != node.usage_maps:
        removed = [f"{key}-" for key in node.usage_maps if key not in maps]
        written = [f"{key}={value}" for key, value in maps.items()]
        yield shlex.join(["kubectl", "annotate", "node", node.name, "--overwrite", *written, *removed])


def _comment(text: str) -> str:
    return f"# {printable(text)}"
