"""
One machine that an autoscaler is asked for, and what the API server may answer when the objects that ask are written.

Two forms ask: a pod that waits (`placeholders`), or a CapacityBuffer (`capacity_buffers`). Their objects have the same
name, labels and annotation. Does not decide which machine, and when to ask again.
"""

from typing import Any, Final, Protocol

import attrs

from neuron_scheduler.errors import ApiError
from neuron_scheduler.model.annotations import CAPACITY_REQUEST_PODS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import Resources

NAMESPACE: Final = "neuron-scheduler-capacity"
MARKER: Final = "neuron-scheduler/placeholder"
"""Label of what asks for a machine; its value is `true`."""
REQUESTED_BY: Final = "neuron-scheduler/requested-by"
"""Label of what asks for a machine: the name of the scheduler for whose pods it asks."""
FOR_NAMESPACE: Final = "neuron-scheduler/for-namespace"
"""Label of what asks for a machine: the namespace of the first pod that waits for it."""
MOST_NAMED: Final = 64
"""Pods whose uids are in the annotation; a person reads it, no decision does."""


@attrs.frozen(kw_only=True)
class MachineOrder:
    """
    One machine that an autoscaler is asked for.

    Attributes:
        name: of the objects that ask for it, the same for each try.
        scheduler_name, namespace: for whose pods.
        instance_types: values of the label; any of them serves.
        zones: any of them serves; empty for every zone.
        requests: all silicon of the machine, and what the pods need of all else.
        like: the pod whose node selector, required terms and tolerations the machine must serve.
        pods: uids of the pods that wait for it.
        image: of the container, which never runs.
    """

    name: str
    scheduler_name: str
    namespace: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...] = ()
    requests: Resources
    like: Pod
    pods: tuple[str, ...]
    image: str


@attrs.frozen
class Asked:
    """The objects are there; `uid` is that of the pod or the CapacityBuffer."""

    uid: str


@attrs.frozen
class Declined:
    """The API server refused for good, and nothing of this try can take effect any more; `message` is its sentence."""

    message: str


@attrs.frozen
class Withdrawn:
    """The objects are gone, or terminating."""


@attrs.frozen
class Unsettled:
    """There is no definite answer, or nothing was sent: the same call finds out more."""

    message: str
    retry_after: float | None = None


class Orders(Protocol):
    """Writes and removes the objects of one form."""

    async def ask(self, order: MachineOrder) -> Asked | Declined | Unsettled:
        """Create the objects, or find that they are there."""

    async def withdraw(self, name: str, uid: str) -> Withdrawn | Declined | Unsettled:
        """Remove the objects of this name; `uid` is empty where it is not known."""

    async def found(self) -> list[Pod]:
        """
        Return what earlier leaders ask for with objects that no watch shows; ApiError, UnreachableError.

        A pod without the condition PodScheduled stands for objects that no autoscaler can have seen.
        """


def metadata_of(order: MachineOrder) -> dict[str, Any]:
    """Return the metadata of every object that asks for a machine."""
    return {
        "name": order.name,
        "namespace": NAMESPACE,
        "labels": {
            "app.kubernetes.io/name": "neuron-scheduler",
            "app.kubernetes.io/component": "capacity-request",
            MARKER: "true",
            REQUESTED_BY: order.scheduler_name,
            FOR_NAMESPACE: order.namespace,
        },
        "annotations": {CAPACITY_REQUEST_PODS: ",".join(order.pods[:MOST_NAMED])},
    }


def exists(error: ApiError) -> bool:
    """Return whether a creation was refused because there is an object of this name."""
    return error.refused and (error.status, error.reason) == (409, "AlreadyExists")


def answered(error: ApiError) -> Declined | Unsettled:
    """Return what a refusal means: a 409 and a 401 are temporary, and an answer that is no Status is no answer."""
    if error.refused and error.status not in (401, 409):
        return Declined(error.message or str(error))
    return Unsettled(str(error), error.retry_after)


def is_gone(error: ApiError, kind: str, name: str) -> bool:
    """Return whether a deletion was refused because the object is gone, or another one has its name."""
    return error.gone(kind, name) or (error.refused and error.status == 409 and "uid in " in error.message.lower())
