"""
The log lines of AWS's Neuron scheduler extension, in its own words, so that its runbooks keep working.

Source: AWS Neuron documentation, "Neuron Scheduler Extension Flow" (verification of filter and bind), with its spelling
mistakes. Lines about our own queue appear from `-v=4` on, usage maps from `-v=6` on; those about kube-scheduler's
requests at the default verbosity. A line is one message without key/value pairs.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Self

import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.index.nodeset import NodeSet, slots_of
from neuron_scheduler.cluster.view import View
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE_ALIAS
from neuron_scheduler.neuron.catalog import Machine
from neuron_scheduler.neuron.core_mask import CoreMask
from neuron_scheduler.neuron.topology import Placement
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.cycle.refusals import first_reasons
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.telemetry import logs

MOST_NAMED: Final = 100  # nodes of a cluster, or of a question, in which the lines name all of them

_log = logs.logger(__name__)

_OTHER: Final = {Unit.CORE: Unit.DEVICE, Unit.DEVICE: Unit.CORE}
_OTHER_NAMES: Final = {Unit.CORE: NEURON_DEVICE_ALIAS, Unit.DEVICE: NEURON_CORE}
"""The resource of the other unit, under the name that AWS's extension writes."""


@attrs.frozen
class Lines:
    """Where the lines about a pod go, and those with usage maps."""

    steps: logs.Logger
    maps: logs.Logger


OF_OUR_QUEUE: Final = Lines(_log.v(4), _log.v(6))
OF_KUBE_SCHEDULER: Final = Lines(_log.v(2), _log.v(2))

_filters, _answers = OF_OUR_QUEUE.steps, OF_KUBE_SCHEDULER.steps


def write_filter(cluster: Cluster, pod: Pod, profile: Profile, chosen: str = "") -> None:
    """
    Write which nodes the pod fits and why it does not fit the others, before its decision is assumed.

    Up to `MOST_NAMED` nodes all are named, as by AWS's extension. In a larger cluster `Filtered nodes` and `Failed
    nodes` count them, and `fits in Node` is written for the chosen node only (empty if none). The filters are run once
    more for it, which costs about as much as a refusal.
    """
    if pod.neuron is None:
        return
    fitting, failed = first_reasons(cluster, pod, profile)
    view = cluster.view
    if view.node_count > MOST_NAMED:
        counts = {reason: nodes.bit_count() for reason, nodes in failed.items()}
        _write_counts(_filters, pod.name, fitting.bit_count(), counts, chosen)
    else:
        reasons = {name: reason for reason, nodes in failed.items() for name in _names(view, nodes)}
        _write_names(_filters, pod.name, _names(view, fitting), reasons)


def write_filter_answer(pod: Pod, passing: Collection[str], failed: Mapping[str, str]) -> None:
    """Write the answer to kube-scheduler which nodes a pod with Neuron fits; `failed` has reasons by node."""
    if not _answers.is_enabled:
        return
    if len(passing) + len(failed) > MOST_NAMED:
        _write_counts(_answers, pod.name, len(passing), Counter(failed.values()))
    else:
        _write_names(_answers, pod.name, passing, failed)


def _names(view: View, nodes: NodeSet) -> list[str]:
    return [view.row(slot).node.name for slot in slots_of(nodes)]


def _write_names(lines: logs.Logger, pod_name: str, fitting: Collection[str], failed: Mapping[str, str]) -> None:
    refused = [f"{name}:{failed[name]}" for name in sorted(failed)]
    _write(lines, pod_name, fitting, " ".join(fitting), refused)


def _write_counts(lines: logs.Logger, pod_name: str, fitting: int, failed: Mapping[str, int], chosen: str = "") -> None:
    refused = [f"{reason}:{failed[reason]} nodes" for reason in sorted(failed)]
    _write(lines, pod_name, [chosen] if chosen else [], f"{fitting} nodes", refused)


def _write(lines: logs.Logger, pod_name: str, fits: Iterable[str], filtered_nodes: str, refused: Iterable[str]) -> None:
    for name in fits:
        lines.info(f"POD {pod_name} fits in Node:{name}")
    lines.info(f"Filtered nodes: [{filtered_nodes}]")
    lines.info(f"Failed nodes: map[{' '.join(refused)}]")
    lines.info("Finished Processing Filter Request...")


def write_bind_start(
    cluster: Cluster, pod: Pod, decision: Decision, annotations: Mapping[str, str], lines: Lines = OF_OUR_QUEUE
) -> None:
    """Write that a Binding is about to be sent, with the ids in it and the usage map without them."""
    steps = lines.steps
    if pod.neuron is None or pod.neuron.wanted is not None or decision.placement is None:
        return  # a pod with claims has no annotations
    resource, node_name = pod.neuron.resource, decision.node_name
    steps.info("Executing Bind Request!")
    steps.info(f"Determine if the pod %v is NeuronDevice pod{pod.name}")
    steps.info("Updating POD Annotation with alloc devices!")
    steps.info(f"Return {resource}")
    usage = _usage(cluster, node_name, lines)
    if usage is not None:
        _usage_map(lines, resource, node_name, usage.less(decision.placement.cores).of(pod.neuron.unit))
    steps.info(f"Allocated ids for POD {pod.name} are: {_ids(decision.placement)}")
    written = " ".join(f"{key}:{annotations[key]}" for key in sorted(annotations))
    steps.info(
        f"Try to bind pod {pod.name} in {pod.namespace} namespace to node {node_name} with"
        f" &Binding{{ObjectMeta:{{{pod.name}  {pod.namespace}  {pod.uid}  0 0001-01-01 00:00:00 +0000 UTC <nil> <nil>"
        f" map[] map[{written}] [] []  []}},Target:ObjectReference{{Kind:Node,Namespace:,Name:{node_name},UID:,"
        "APIVersion:,ResourceVersion:,FieldPath:,},}"
    )


def write_bind_end(cluster: Cluster, pod: Pod, decision: Decision, lines: Lines = OF_OUR_QUEUE) -> None:
    """Write which ids a bound pod got, with the usage maps of its node without it and with it."""
    steps, maps = lines.steps, lines.maps
    if pod.neuron is None or pod.neuron.wanted is not None or decision.placement is None:
        return
    placement, resource, node_name = decision.placement, pod.neuron.resource, decision.node_name
    unit, usage = pod.neuron.unit, _usage(cluster, node_name, lines)
    steps.info("Updating the DevUsageMap since the bind is successful!")
    steps.info(f"Return {resource}")
    if usage is not None:
        before = usage.less(placement.cores)
        _usage_map(lines, NEURON_CORE, node_name, before.of(Unit.CORE))
        _usage_map(lines, NEURON_DEVICE_ALIAS, node_name, before.of(Unit.DEVICE))
    steps.info(f"Allocated devices list {_ids(placement)} for resource {resource}")
    if usage is not None:
        for listed in usage.counterparts(placement, unit):
            maps.info(f"Allocated devices list {listed} for other resource {_OTHER_NAMES[unit]}")
    steps.info(f"Return {resource}")
    if usage is not None:
        own, other = usage.of(unit), usage.of(_OTHER[unit])
        maps.info(
            f"Succesfully updated the DevUsageMap {own}  and otherDevUsageMap {other} after alloc for node {node_name}"
        )
    steps.info("Finished executing Bind Request...")


@attrs.frozen
class _Usage:
    machine: Machine
    free: CoreMask

    def less(self, cores: CoreMask) -> Self:
        return attrs.evolve(self, free=self.free | cores)

    def of(self, unit: Unit) -> str:
        """Return which devices or cores are in use, at least in part, as Go prints a slice of booleans."""
        width = self.machine.cores_per_device if unit is Unit.DEVICE else 1
        mask, free = (1 << width) - 1, int(self.free)
        in_use = ((free >> i * width & mask) != mask for i in range(self.machine.size(unit)))
        return _go_slice("true" if used else "false" for used in in_use)

    def counterparts(self, placement: Placement, unit: Unit) -> Iterator[str]:
        """Yield the ids in the other unit for each id: the device of a core, the cores of a device."""
        width = self.machine.cores_per_device
        for i in placement.ids:
            counterpart = (i // width,) if unit is Unit.CORE else range(i * width, (i + 1) * width)
            yield _go_slice(map(str, counterpart))


def _usage(cluster: Cluster, node_name: str, lines: Lines) -> _Usage | None:
    node_info = cluster.node(node_name)
    if not lines.maps.is_enabled or node_info is None or node_info.machine is None:
        return None
    return _Usage(node_info.machine, node_info.free_cores)


def _usage_map(lines: Lines, resource: str, node_name: str, usage: str) -> None:
    lines.maps.info(f"neuronDevUsageMap for resource:{resource} in node: {node_name} is {usage}")


def _ids(placement: Placement) -> str:
    return ",".join(map(str, placement.ids))


def _go_slice(values: Iterable[str]) -> str:
    return f"[{' '.join(values)}]"
