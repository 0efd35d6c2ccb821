"""
The log lines of AWS's Neuron scheduler extension, in its own words, so that its runbooks keep working.

AWS Neuron documentation, "Neuron Scheduler Extension Flow" (verification of filter and bind), quirks of spelling
included. Written at `-v=4` and above; usage maps at `-v=6`. A line is one message, without key/value pairs.
"""

from collections.abc import Iterable

from neuron_scheduler import logs
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE_ALIAS
from neuron_scheduler.scheduling.decide import Decision, explain
from neuron_scheduler.scheduling.profile import Profile

_filters = logs.logger(__name__).v(4)
_maps = logs.logger(__name__).v(6)


def filtered(cluster: Cluster, pod: Pod, profile: Profile) -> None:
    """Write which nodes the pod fits and why it does not fit the others; dear in a large cluster."""
    if not _filters.enabled or pod.neuron is None:
        return
    fitting, failed = explain(cluster, pod, profile)
    for name in fitting:
        _filters.info(f"POD {pod.name} fits in Node:{name}")
    _filters.info(f"Filtered nodes: [{' '.join(fitting)}]")
    _filters.info(f"Failed nodes: map[{' '.join(f'{name}:{reason}' for name, reason in sorted(failed.items()))}]")
    _filters.info("Finished Processing Filter Request...")


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
