"""
A workload that is described by its size, such as 8 devices and 16 CPUs, as flags and queries describe it.

The pod is read like one from a file, so quantities are Kubernetes' own. It tolerates the taints that Neuron nodes
usually have, as the admission plugin ExtendedResourceToleration would make it.
"""

from collections.abc import Mapping
from typing import Final

from neuron_scheduler.capture.workloads import MOST_REPLICAS, Object, Part, TemplateSpec, pod_set
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.replicated import Replicated
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_NAMES
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

SIZES: Final = ("devices", "cores", "cpu", "memory", "instanceType", "schedulerName")
MOST_CONTAINERS: Final = 16


def workload_of_size(size: Mapping[str, str], *, namespace: str, scheduler_name: str, replicas: int = 0) -> Replicated:
    """
    Return replicas of a pod of this size.

    Args:
        size: texts by `SIZES`: the devices or cores of each container, such as `8` or `4,4`; quantities of the first
            container; an instance type without `ml.`; who would place the pods.
        namespace: where the pods would be.
        scheduler_name: who would place them if the size does not say it.
        replicas: 0 to ask how many there can be.
    """
    requests: list[wire.Quantities] = []
    for name, resource in (("devices", NEURON_DEVICE), ("cores", NEURON_CORE)):
        try:
            requests += [{resource: count(text)} for text in size.get(name, "").split(",") if size.get(name)]
        except ValueError as error:
            raise ConfigurationError(f"{name}: {error}") from None
    others: wire.Quantities = {name: size[name] for name in ("cpu", "memory") if size.get(name)}
    if not (requests or others):
        raise ConfigurationError("say what a pod asks for: devices, cores, cpu or memory, or a file with a workload")
    if len(requests) > MOST_CONTAINERS:
        raise ConfigurationError(f"{len(requests)} containers; a pod of a size has at most {MOST_CONTAINERS}")
    first, *rest = requests or [{}]
    spec = TemplateSpec(
        scheduler_name=size.get("schedulerName") or scheduler_name,
        containers=[wire.Container("", resources=wire.Resources(each)) for each in ({**first, **others}, *rest)],
        tolerations=[wire.Toleration(name, "Exists") for name in NEURON_NAMES],
        affinity=_of_type(size["instanceType"]) if size.get("instanceType") else None,
    )
    try:
        pods = pod_set(Part(Object(spec)), "size", namespace)
    except ValueError as error:
        raise ConfigurationError(printable(str(error))) from None
    if pods.template.refusal:
        raise ConfigurationError(pods.template.refusal)
    return Replicated(replicas, (pods,))


def _of_type(instance_type: str) -> wire.Affinity:
    names = [instance_type, f"ml.{instance_type}"]  # HyperPod's name of the same type
    term = wire.NodeTerm([wire.Expression(INSTANCE_TYPE_LABEL, "In", names)])
    return wire.Affinity(wire.NodeAffinity(wire.NodeTerms([term])))


def count(text: str) -> int:
    """Return a number above 0; ValueError if it is none, or too large."""
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 0 < int(text) <= MOST_REPLICAS):
        raise ValueError(f"{printable(text[:40])!r} is no number from 1 to {MOST_REPLICAS}")
    return int(text)
