"""
A Service, ReplicaSet, ReplicationController or StatefulSet, as far as the scheduler asks: which pods it means.
"""

from typing import Final

import attrs

from neuron_scheduler.model.selectors import LabelSelector

SERVICE: Final = "Service"


@attrs.frozen
class Workload:
    """
    Something that pods belong to.

    Attributes:
        selector: None matches nothing; one without requirements tells nothing.
    """

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str
    selector: LabelSelector | None = None
