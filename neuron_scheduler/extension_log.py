"""
The log lines of AWS's Neuron scheduler extension, in its own words, so that its runbooks keep working.

AWS Neuron documentation, "Neuron Scheduler Extension Flow" (verification of filter and bind), quirks of spelling
included. The filter's lines are written for every attempt of a pod with Neuron, whether it gets a node or not. Written
at `-v=4` and above; usage maps at `-v=6`. A line is one message, without key/value pairs.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final

from neuron_scheduler import logs
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.nodeset import NodeSet, slots_of
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE_ALIAS
from neuron_scheduler.scheduling.decide import Decision, explain
from neuron_scheduler.scheduling.profile import Profile

MOST_NAMED: Final = 100  # nodes of a cluster in which the lines name each
_NAMED_OF_MANY: Final = 3

_filters = logs.logger(__name__).v(4)
_maps = logs.logger(__name__).v(6)


def filtered(cluster: Cluster, pod: Pod, profile: Profile, chosen: str = "") -> None:
    """
    Write which nodes the pod fits and why it does not fit the others, for an attempt that is not assumed yet.

    Up to `MOST_NAMED` nodes in the cluster each is named, as AWS's extension does. In a larger one the log would be a
    list of nodes, so `Filtered nodes` and, for each reason, `Failed nodes` name three nodes and count the others, and
    `fits in Node` is about the chosen node alone. The filters are asked once more for it: about as much as a refusal
    costs.

    Args:
        cluster: as it was when the attempt was decided.
        pod: nothing is written for a pod without Neuron.
        profile: the filters.
        chosen: the node that the pod gets; empty if none.
    """
    if not _filters.enabled or pod.neuron is None:
        return
    fitting, failed = explain(cluster, pod, profile)
    for line in _named(cluster.view, fitting, failed, chosen, pod.name):
        _filters.info(line)
    _filters.info("Finished Processing Filter Request...")


def _named(view: View, fitting: NodeSet, failed: Mapping[str, NodeSet], chosen: str, pod_name: str) -> Iterator[str]:
    """Yield the lines that name nodes."""
    if view.node_count > MOST_NAMED:
        if chosen:
            yield f"POD {pod_name} fits in Node:{chosen}"
        reasons = (f"{reason}:[{_some(view, nodes)}]" for reason, nodes in sorted(failed.items()))
        yield f"Filtered nodes: [{_some(view, fitting, chosen)}]"
        yield f"Failed nodes: map[{' '.join(reasons)}]"
        return
    names = [view.row(slot).node.name for slot in slots_of(fitting)]
    for name in names:
        yield f"POD {pod_name} fits in Node:{name}"
    yield f"Filtered nodes: [{' '.join(names)}]"
    refused = sorted((view.row(slot).node.name, reason) for reason, nodes in failed.items() for slot in slots_of(nodes))
    yield f"Failed nodes: map[{' '.join(f'{name}:{reason}' for name, reason in refused)}]"


def _some(view: View, nodes: NodeSet, first: str = "") -> str:
    """Return the names of a few nodes, one of them first if it is given, and the number of the others."""
    names = (view.row(slot).node.name for slot in slots_of(nodes))
    others = (name for name in names if name != first)
    named = list(islice(chain(filter(None, (first,)), others), _NAMED_OF_MANY))
    more = nodes.bit_count() - len(named)
    return " ".join(named) + (f" and {more} more" if more > 0 else "")


def allocated(cluster: Cluster, pod: Pod, decision: Decision) -> None:
    """Write which ids a bound pod was given, and the usage maps of its node as they are now."""
    if not _filters.enabled or pod.neuron is None or decision.placement is None:
        return
    ids = ",".join(map(str, decision.placement.ids))
    _filters.info("Executing Bind Request!")
    _filters.info(f"Determine if the pod %v is NeuronDevice pod{pod.name}")
    _filters.info("Updating POD Annotation with alloc devices!")
    _filters.info(f"Return {pod.neuron.resource}")
    _filters.info(f"Allocated ids for POD {pod.name} are: {ids}")
    _filters.info(f"Try to bind pod {pod.name} in {pod.namespace} namespace to node {decision.node_name}")
    _filters.info("Updating the DevUsageMap since the bind is successful!")
    _filters.info(f"Allocated devices list {ids} for resource {pod.neuron.resource}")
    _usage_maps(cluster, pod.neuron.unit, decision.node_name)
    _filters.info("Finished executing Bind Request...")


def _usage_maps(cluster: Cluster, unit: Unit, node_name: str) -> None:
    state = cluster.node(node_name)
    if not _maps.enabled or state is None or state.machine is None:
        return
    machine, free = state.machine, state.free_cores
    cores = _go_bools(not free >> core & 1 for core in range(machine.cores))
    width = machine.cores_per_device
    mask = (1 << width) - 1
    devices = _go_bools((free >> device * width & mask) != mask for device in range(machine.devices))
    _maps.info(f"neuronDevUsageMap for resource:{NEURON_CORE} in node: {node_name} is {cores}")
    _maps.info(f"neuronDevUsageMap for resource:{NEURON_DEVICE_ALIAS} in node: {node_name} is {devices}")
    own, other = (devices, cores) if unit is Unit.DEVICE else (cores, devices)
    _maps.info(
        f"Succesfully updated the DevUsageMap {own}  and otherDevUsageMap {other} after alloc for node {node_name}"
    )


def _go_bools(values: Iterable[bool]) -> str:
    return f"[{' '.join('true' if value else 'false' for value in values)}]"
