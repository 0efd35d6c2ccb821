"""A Service, ReplicaSet, ReplicationController or StatefulSet, as far as it selects pods."""

from typing import Final

import attrs

from neuron_scheduler.model.selectors import LabelSelector

SERVICE: Final = "Service"


@attrs.frozen
class Workload:
    """
    A Service or a controller of pods.

    Attributes:
        selector: None matches nothing; one without requirements is ignored.
    """

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str
    selector: LabelSelector | None = None
