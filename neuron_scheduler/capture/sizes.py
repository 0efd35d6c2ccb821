"""
A workload that is described by its size, such as 8 devices and 16 CPUs, and purchases that are written as `2xTYPE`.

The pod is read like one from a file, so quantities are Kubernetes' own. It tolerates the taints that Neuron nodes
usually have, as the admission plugin ExtendedResourceToleration would make it. Does not depend on flags.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from neuron_scheduler.capture.workloads import Fields, Part, pod_set
from neuron_scheduler.explain.fit import Replicated
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_NAMES
from neuron_scheduler.telemetry.errors import ConfigurationError
from neuron_scheduler.telemetry.line_formats import printable

MOST_OF_A_SIZE: Final = 10_000
"""Devices or cores of a pod, and replicas."""
MOST_CONTAINERS: Final = 16
MOST_BOUGHT: Final = 256
MOST_PURCHASES: Final = 8

_PURCHASE: Final = re.compile(r"(?:([0-9]{1,4})x)?(?:ml\.)?([a-z][a-z0-9-]{0,30}\.[a-z0-9-]{1,30})", re.ASCII)


def sized(
    *,
    devices: Sequence[int] = (),
    cores: Sequence[int] = (),
    cpu: str = "",
    memory: str = "",
    instance_type: str = "",
    replicas: int = 0,
    namespace: str = "default",
    scheduler_name: str = "",
) -> Replicated:
    """
    Return replicas of a pod of this size.

    Args:
        devices: of each container.
        cores: likewise; a pod asks for either devices or cores.
        cpu: a quantity, of the first container; empty for none.
        memory: likewise.
        instance_type: without `ml.`; empty for any.
        replicas: 0 to ask how many there can be.
        namespace: where the pods would be.
        scheduler_name: who would place them.

    Raises:
        ConfigurationError: a number or a quantity cannot be used.
    """
    asked = [*(("devices", number) for number in devices), *(("cores", number) for number in cores)]
    for name, number in (*asked, ("replicas", replicas)):
        if not 0 <= number <= MOST_OF_A_SIZE:
            raise ConfigurationError(f"{name}: {number} is no number from 0 to {MOST_OF_A_SIZE}")
    if len(asked) > MOST_CONTAINERS:
        raise ConfigurationError(f"{len(asked)} containers; a pod of a size has at most {MOST_CONTAINERS}")
    amounts = [{NEURON_DEVICE if name == "devices" else NEURON_CORE: number} for name, number in asked if number]
    others = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    if not (amounts or others):
        raise ConfigurationError("say what a pod asks for: devices, cores, cpu or memory, or a file with a workload")
    first, *rest = amounts or [{}]
    spec: dict[str, Any] = {
        "schedulerName": scheduler_name or None,
        "containers": [
            {"name": f"c{index}", "resources": {"requests": requests}}
            for index, requests in enumerate([{**first, **others}, *rest])
        ],
        "tolerations": [{"key": name, "operator": "Exists"} for name in NEURON_NAMES],
    }
    if instance_type:
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _of_type(instance_type)}}
    fields = Fields("the size", {"kind": "pod", "metadata": {"name": "size", "namespace": namespace}, "spec": spec})
    pods, notes = pod_set(fields, Part(fields), namespace=namespace)
    if pods.template.refusal:
        raise ConfigurationError(pods.template.refusal)
    return Replicated(replicas, (pods,), notes=notes)


def _of_type(instance_type: str) -> dict[str, Any]:
    values = [instance_type, f"ml.{instance_type}"]  # HyperPod's name of the same type
    expression = {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": values}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def counts(text: str) -> tuple[int, ...]:
    """
    Return the counts of `8`, or of `4,4` for two containers.

    Raises:
        ValueError: one is no number above 0.
    """
    return tuple(map(count, text.split(","))) if text else ()


def count(text: str) -> int:
    """
    Return a number above 0.

    Raises:
        ValueError: it is none, or too large.
    """
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 0 < int(text) <= MOST_OF_A_SIZE):
        raise ValueError(f"{printable(text[:40])!r} is no number from 1 to {MOST_OF_A_SIZE}")
    return int(text)


def purchases(text: str) -> tuple[tuple[int, str], ...]:
    """
    Return purchases written as `2xtrn1.32xlarge`, or as `trn1.32xlarge` for one node, with commas between several.

    Raises:
        ConfigurationError: one of them cannot be read.
    """
    found = tuple(_purchases(text))
    if len(found) > MOST_PURCHASES:
        raise ConfigurationError(f"{len(found)} purchases; at most {MOST_PURCHASES} are tried at once")
    return found


def _purchases(text: str) -> Iterator[tuple[int, str]]:
    for part in filter(None, text.split(",")):
        match = _PURCHASE.fullmatch(part.strip())
        if match is None:
            raise ConfigurationError(f"{printable(part)!r} is no purchase; write 2xtrn1.32xlarge")
        number = int(match[1] or "1")
        if not 0 < number <= MOST_BOUGHT:
            raise ConfigurationError(f"{number} nodes; a purchase has 1 to {MOST_BOUGHT}")
        yield number, match[2]
