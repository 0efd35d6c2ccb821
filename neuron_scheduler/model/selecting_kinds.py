"""What selects pods, or groups of them: a Service, a controller, a namespace."""

from collections.abc import Mapping
from typing import Final

import attrs

from neuron_scheduler.model.selectors import NO_LABELS, LabelSelector

SERVICE: Final = "Service"


@attrs.frozen
class Workload:
    """
    A Service, ReplicaSet, ReplicationController or StatefulSet, as far as it selects pods.

    Attributes:
        selector: None matches nothing; one without requirements is ignored.
    """

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str
    selector: LabelSelector | None = None


@attrs.frozen
class Namespace:
    """One namespace, as far as affinity terms select pods by it."""

    uid: str
    name: str
    labels: Mapping[str, str] = NO_LABELS
