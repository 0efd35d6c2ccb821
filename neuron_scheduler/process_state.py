"""
The present state of all parts as /metrics shows it: what takes long is counted before, in small steps.

It only reads. Does not compute what decisions compute: free blocks and what fits are `explain.inventory`'s, what pods
wait for is `explain.waiting`'s.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

import attrs

from neuron_scheduler.explain import inventory
from neuron_scheduler.explain.steps import finished
from neuron_scheduler.explain.waiting import WaitingPods, waiting_pods
from neuron_scheduler.scheduling.plugins.cause import Cause
from neuron_scheduler.scheduling.queue.queued_pod import Place
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.state_metrics import State
from neuron_scheduler.wiring import Parts

WAITING = (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED)
_OTHERS = "(others)"
"""The label of the nodes that are not named; no node can have this name."""


@attrs.define(eq=False)
class ProcessState:
    """
    Reads the state.

    Attributes:
        count_unknown_only: pods with unknown ids count by number only.
        clock: the clock of the queue.
    """

    parts: Parts
    count_unknown_only: bool = False
    clock: Callable[[], float] = time.monotonic
    _waiting: WaitingPods | None = attrs.field(default=None, init=False)

    def prepared(self) -> Iterator[None]:
        """Prepare for `read` in small steps; yields whenever other tasks may run."""
        for waiting in waiting_pods(self.parts.queue):
            if waiting is not None:
                self._waiting = waiting
            yield
        yield from self.parts.scheduling_loop.timing.flushed()
        yield from inventory.prepared(self.parts.cluster)

    def read(self) -> State:
        """Return the state: that of the pods as last prepared, the rest as it is now."""
        parts, cluster = self.parts, self.parts.cluster
        waiting = self._waiting or finished(waiting_pods(parts.queue))
        devices = inventory.devices(cluster, count_unknown_only=self.count_unknown_only, waiting=waiting.block_sizes)
        return State(
            leader=parts.election.leading if parts.election is not None else True,
            watch_synced={informer.resource.name: int(informer.synced.is_set()) for informer in parts.informers},
            watch_stale={informer.resource.name: int(informer.stale) for informer in parts.informers},
            pending_pods={place: parts.queue.count(place) for place in WAITING},
            unschedulable_pods=parts.queue.refused_by_plugin(),
            cache_size={
                "nodes": cluster.view.node_count,
                "pods": cluster.pod_count,
                "assumed_pods": cluster.assumed_count,
            },
            pods_waiting={cause: waiting.by_cause[cause] for cause in Cause},
            neuron_pods_waiting=waiting.by_size,
            oldest_wait=waiting.waits(self.clock()),
            unknown_holders=inventory.unknown_holders(cluster),
            unknown_holders_by_node=self._unknown_holders_by_node(),
            conflicting_cores=inventory.double_booked_cores(cluster),
            binds_in_flight=parts.binder.in_flight,
            waiting_for_volumes=parts.volumes.waiting,
            waiting_for_allocate=parts.scheduling_loop.fence.waiting,
            binds_unknown=parts.binder.unknown,
            free_devices=devices.free,
            used_devices=devices.used,
            withheld_devices=devices.withheld,
            largest_free_block=devices.largest_block,
            free_blocks=devices.blocks,
            would_fit=devices.fits,
            stranded_devices=devices.stranded,
            set_aside_devices=devices.set_aside,
            nodes_set_aside=parts.rejections.set_aside,
            terms_left_out=cluster.view.terms_left_out,
            capacity_requests=parts.capacity.counts(),
            log_lines_dropped=logs.dropped(),
            tasks=len(asyncio.all_tasks()),
        )

    def _unknown_holders_by_node(self) -> dict[str, int]:
        by_node, others = inventory.unknown_holders_by_node(self.parts.cluster)
        return by_node | ({_OTHERS: others} if others else {})
