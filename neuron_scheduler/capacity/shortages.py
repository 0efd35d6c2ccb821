"""
Why a hidden pod waits, in the words of its condition, and whether a further machine is the remedy.

It is, where devices or cores are free in pieces, and where pods that ask in the other unit hold them: autoscalers count
devices and cores apart. Refuses machines for a fault that people must mend, such as pods with unknown ids; but one such
pod is no reason to ask for none where enough is free in pieces on nodes without them.
"""

from collections.abc import Generator
from typing import Final

import attrs

from neuron_scheduler.capacity.lines import Line
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.scheduling.cycle.index_warmup import IndexWarmup
from neuron_scheduler.scheduling.cycle.neuron_shortage import neuron_shortage
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision, diagnosis, select_node
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.signature import Signature

FITS_NOW: Final = "it fits now, and is about to be tried"
SERVED_BY_A_MACHINE: Final = frozenset({Cause.FRAGMENTATION, Cause.CAPACITY})
"""A pod that waits for the second is hidden if pods with cores hold its devices, or the reverse."""
MAY_BE_SERVED: Final = SERVED_BY_A_MACHINE | {Cause.UNKNOWN_HOLDER}
"""A pod that waits for anything else is no case; of a pod that waits for the third, the other nodes decide."""


@attrs.define(eq=False)
class Shortages:
    """
    Why lines of pods wait.

    Attributes:
        clauses: by the key of a line: `24 Neuron devices free on 2 nodes, largest free block 1, pod needs 4`.
    """

    _cluster: Cluster
    clauses: dict[Signature, str] = attrs.field(factory=dict)
    _warmup: IndexWarmup = attrs.field(factory=IndexWarmup)

    def objection(self, line: Line) -> Generator[None, None, str]:
        """Return why no machine is asked for the pods of a line, in a clause; empty if one may be."""
        pod, profile = line.pods[0], line.profile
        yield from self._warmup.of(self._cluster, pod, profile)
        result = select_node(self._cluster, pod, profile)
        yield
        if isinstance(result, Decision):
            return FITS_NOW
        yield from self._warmup.of_refusal(self._cluster, pod, profile)
        found = diagnosis(self._cluster, pod, profile, result)
        yield
        shortage, cause = neuron_shortage(self._cluster, pod, profile, found.refusals), found.fit_error.cause
        in_pieces_elsewhere = shortage is not None and shortage.cause is Cause.FRAGMENTATION
        if cause not in SERVED_BY_A_MACHINE and not (cause is Cause.UNKNOWN_HOLDER and in_pieces_elsewhere):
            return f"a new machine is not the remedy for what it waits for ({cause.replace('_', ' ')})"
        if shortage is not None:
            self.clauses[line.key] = shortage.sentence.partition(": ")[2].removesuffix(".")
        return ""
