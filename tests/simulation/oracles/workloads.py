"""
When all is quiet, a workload that has the machines for itself runs, as far as they go.

So many of its pods are bound as its owner can expect. Of the groups of a LeaderWorkerSet one runs before several hold
machines in part.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import attrs

from tests.simulation.deeds import Apply
from tests.simulation.oracles.change import Object, Oracle, annotations_of, metadata_of
from tests.simulation.oracles.group_words import LWS
from tests.simulation.oracles.reading import node_name_of

_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"


@attrs.define(eq=False, kw_only=True)
class Workloads(Oracle):
    """
    Looks at the end.

    Attributes:
        applied: what users have applied.
        pods: returns the pods of the API server.
    """

    applied: tuple[Apply, ...]
    pods: Callable[[], Iterable[Object]]

    def ended(self) -> None:
        """Judge each workload."""
        if not self.applied:
            return
        bound = [pod for pod in self.pods() if node_name_of(pod)]
        for deed in self.applied:
            if len(bound) < deed.expects:
                self.violated(f"{len(bound)} of {deed.expects} pods are bound of: {deed.text}")
        groups = Counter(str((metadata_of(pod).get("labels") or {}).get(LWS, "")) for pod in bound)
        size = max((int(annotations_of(pod).get(_SIZE, "0")) for pod in bound), default=0)
        if len(groups) > 1 and max(groups.values()) < size:
            self.violated(f"{len(groups)} groups of {size} hold {len(bound)} machines, and none is complete")
