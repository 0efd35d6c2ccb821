"""
The present state of the process as gauges: queues, caches, Neuron devices, Bindings in flight.

The state is read at each scrape, so that nothing is counted twice or forgotten. Refuses to know which part holds it.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import attrs
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

NONE: Final[Mapping[str, int]] = MappingProxyType({})
NO_PAIRS: Final[Mapping[tuple[str, str], int]] = MappingProxyType({})
QUEUES: Final = ("active", "backoff", "unschedulable", "gated")


@attrs.frozen
class State:
    """
    The state at one moment, as `wiring` collects it.

    Attributes:
        leader: this process holds the Lease (or needs none).
        pending_pods: pods by queue: active, backoff, unschedulable, gated.
        unschedulable_pods: pods by (plugin that refused them last, profile).
        cache_size: nodes, pods, assumed_pods.
        unknown_holders: bound pods whose allocation cannot be read.
        conflicting_cores: cores claimed by more than one pod.
        binds_in_flight: Bindings without a definite outcome, those in doubt included.
        binds_unknown: Bindings in doubt: a try may have succeeded, and no answer says so.
        waiting_for_volumes: pods that have a node and wait for their volumes to be bound.
        waiting_for_allocate: pods that have a node and wait until another pod of it has been admitted.
        pods_waiting: pods by cause.
        free_devices: devices that a pod could get now, by instance type.
        used_devices: devices of which pods hold a part or all, by instance type.
        withheld_devices: devices that nobody holds and nobody gets, by (instance type, reason).
        largest_free_block: devices in the largest free block of one node, by instance type.
        log_lines_dropped: log lines that stderr did not take, ever.
        nodes_set_aside: nodes that come last, or of which some ids do, because they have rejected pods.
        terms_left_out: affinity terms of bound pods that are not honoured: their namespaces have too many.
    """

    leader: bool = False
    pending_pods: Mapping[str, int] = NONE
    unschedulable_pods: Mapping[tuple[str, str], int] = NO_PAIRS
    cache_size: Mapping[str, int] = NONE
    unknown_holders: int = 0
    conflicting_cores: int = 0
    binds_in_flight: int = 0
    binds_unknown: int = 0
    waiting_for_volumes: int = 0
    waiting_for_allocate: int = 0
    pods_waiting: Mapping[str, int] = NONE
    free_devices: Mapping[str, int] = NONE
    used_devices: Mapping[str, int] = NONE
    withheld_devices: Mapping[tuple[str, str], int] = NO_PAIRS
    largest_free_block: Mapping[str, int] = NONE
    log_lines_dropped: int = 0
    terms_left_out: int = 0
    nodes_set_aside: int = 0


@attrs.define(eq=False)
class StateCollector:
    """Turns the state of the moment into metrics."""

    _state: Callable[[], State]
    _lease_name: str

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry asks this on registration, when the process has no state yet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield one family a metric."""
        state = self._state()
        queues = dict.fromkeys(QUEUES, 0) | dict(state.pending_pods)
        yield _by("scheduler_pending_pods", "Pending pods, by queue.", "queue", queues)
        yield _by_pairs(
            "scheduler_unschedulable_pods",
            "Unschedulable pods, by the plugin that refused them last.",
            ("plugin", "profile"),
            state.unschedulable_pods,
        )
        yield _by("neuron_scheduler_pods_waiting", "Pending pods, by what they wait for.", "cause", state.pods_waiting)
        yield _by("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type", state.cache_size)
        yield _by(
            "leader_election_master_status",
            "1 if this process is the leader, 0 if it stands by.",
            "name",
            {self._lease_name: int(state.leader)},
        )
        for name, text, number in (
            ("unknown_holders", "Bound pods whose Neuron allocation cannot be read.", state.unknown_holders),
            ("conflicting_cores", "Neuron cores claimed by more than one pod.", state.conflicting_cores),
            ("binds_in_flight", "Bindings without a definite outcome, those in doubt included.", state.binds_in_flight),
            ("binds_unknown", "Bindings in doubt, which are sent again.", state.binds_unknown),
            ("terms_left_out", "Affinity terms of bound pods beyond what a namespace may have.", state.terms_left_out),
            ("nodes_set_aside", "Nodes used last for a while, as they rejected pods.", state.nodes_set_aside),
            ("waiting_for_volumes", "Pods that wait for their volumes to be bound.", state.waiting_for_volumes),
            (
                "waiting_for_allocate",
                "Pods with a node that are bound once the device plugin can no longer confuse them with another pod.",
                state.waiting_for_allocate,
            ),
        ):
            yield GaugeMetricFamily(f"neuron_scheduler_{name}", text, value=number)
        yield CounterMetricFamily(
            "neuron_scheduler_log_lines_dropped", "Log lines that stderr did not take.", value=state.log_lines_dropped
        )
        for name, text, numbers in (
            ("free_devices", "Neuron devices that a pod could get now, by instance type.", state.free_devices),
            ("used_devices", "Neuron devices that pods hold, wholly or in part, by instance type.", state.used_devices),
            (
                "largest_free_block",
                "Devices in the largest free block of one node, by instance type: a larger request waits.",
                state.largest_free_block,
            ),
        ):
            yield _by(f"neuron_scheduler_{name}", text, "instance_type", numbers)
        yield _by_pairs(
            "neuron_scheduler_withheld_devices",
            "Neuron devices that no pod holds and none would get, by instance type and reason.",
            ("instance_type", "reason"),
            state.withheld_devices,
        )


def _by(name: str, text: str, label: str, numbers: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, number in numbers.items():
        family.add_metric((value,), number)
    return family


def _by_pairs(
    name: str, text: str, labels: tuple[str, str], numbers: Mapping[tuple[str, str], int]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in numbers.items():
        family.add_metric(values, number)
    return family
