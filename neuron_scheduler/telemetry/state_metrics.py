"""
The present state of the process as gauges: queues, caches, Neuron devices, Bindings in flight.

The state is read at each scrape, so that nothing is counted twice or forgotten.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

import attrs
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


def _gauge(name: str, text: str, *labels: str, family: type[Metric] = GaugeMetricFamily, **options: Any) -> Any:
    """
    Declare a field whose value is a metric.

    Without labels it is a number; with one it maps the label's values to numbers, with several, tuples of their values.
    """
    metadata = {"family": family, "name": name, "text": text, "labels": labels}
    return attrs.field(**{"default": _EMPTY if labels else 0} | options, metadata=metadata)


@attrs.frozen
class State:
    """
    The state at one moment, as `app` collects it.

    A metric is declared once, here. The order of the declarations is that of /metrics.
    """

    pending_pods: Mapping[str, int] = _gauge("scheduler_pending_pods", "Pending pods, by queue.", "queue")
    unschedulable_pods: Mapping[tuple[str, str], int] = _gauge(
        "scheduler_unschedulable_pods", "Unschedulable pods, by the plugin that refused them last.", "plugin", "profile"
    )
    pods_waiting: Mapping[str, int] = _gauge(
        "neuron_scheduler_pods_waiting", "Pending pods, by what they wait for.", "cause"
    )
    neuron_pods_waiting: Mapping[tuple[str, str, str], int] = _gauge(
        "neuron_scheduler_neuron_pods_waiting",
        "Pending pods that ask for Neuron, by what they wait for, and by what they ask for in all: a unit (device or"
        " core) and a size. More than 8 cores are rounded up to a power of two.",
        "cause",
        "unit",
        "size",
    )
    groups_waiting: Mapping[str, int] = _gauge(
        "neuron_scheduler_groups_waiting",
        "Groups of pods that wait, by state: held (fewer members exist than it needs) or refused (too few fit at"
        " once).",
        "state",
    )
    oldest_wait: Mapping[tuple[str, str], float] = _gauge(
        "neuron_scheduler_oldest_wait_seconds",
        "Seconds that the oldest pod without a node has waited, without the time it was gated, by unit and size of its"
        " Neuron request. Counted from when this process saw the pod.",
        "unit",
        "size",
    )
    watch_synced: Mapping[str, int] = _gauge(
        "neuron_scheduler_watch_synced",
        "1 if the first list of a resource has been read; until then this replica is not ready.",
        "resource",
    )
    watch_stale: Mapping[str, int] = _gauge(
        "neuron_scheduler_watch_stale",
        "1 if a resource has been neither listed nor watched for two minutes: this replica is not ready.",
        "resource",
    )
    cache_size: Mapping[str, int] = _gauge("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type")
    leader: bool = _gauge(
        "leader_election_master_status",
        "1 if this process is the leader, 0 if it is on standby.",
        "name",
        default=False,
    )
    """This process holds the Lease, or needs none; the label has the name of the Lease."""
    unknown_holders: int = _gauge(
        "neuron_scheduler_unknown_holders", "Bound pods whose Neuron allocation cannot be read."
    )
    unknown_holders_by_node: Mapping[str, int] = _gauge(
        "neuron_scheduler_unknown_holders_by_node",
        "Bound pods whose Neuron allocation cannot be read, on the 20 nodes with the most of them; those of all other"
        " nodes together have the value (others).",
        "node",
    )
    conflicting_cores: int = _gauge("neuron_scheduler_conflicting_cores", "Neuron cores claimed by more than one pod.")
    binds_in_flight: int = _gauge(
        "neuron_scheduler_binds_in_flight", "Bindings without a definite outcome, those in doubt included."
    )
    binds_unknown: int = _gauge("neuron_scheduler_binds_unknown", "Bindings in doubt, which are sent again.")
    """A try may have succeeded, and no answer says so."""
    terms_left_out: int = _gauge(
        "neuron_scheduler_terms_left_out",
        "Affinity terms of bound pods that are ignored, because their namespace has too many.",
    )
    """These terms are not honoured."""
    nodes_set_aside: int = _gauge(
        "neuron_scheduler_nodes_set_aside", "Nodes used last for a while, because they rejected pods."
    )
    """Nodes of which only some ids are used last count too."""
    waiting_for_volumes: int = _gauge(
        "neuron_scheduler_waiting_for_volumes", "Pods that wait for their volumes to be bound."
    )
    """They have a node."""
    waiting_for_allocate: int = _gauge(
        "neuron_scheduler_waiting_for_allocate",
        "Pods with a node that are bound once the device plugin can no longer confuse them with another pod.",
    )
    """They wait until another pod of the node has been admitted."""
    capacity_requests: Mapping[str, int] = _gauge(
        "neuron_scheduler_capacity_requests",
        "Machines that waiting pods need and an autoscaler does not see, by state: open (it is asked), arriving (the"
        " node has joined), limited, refused (by the API server).",
        "state",
    )
    log_lines_dropped: int = _gauge(
        "neuron_scheduler_log_lines_dropped",
        "Log lines that were dropped because stderr did not take them.",
        family=CounterMetricFamily,
    )
    tasks: int = _gauge(
        "neuron_scheduler_tasks",
        "Tasks of the event loop: a fixed number, one for each pod whose volumes are bound, and those of connections.",
    )
    """If the number grows for hours while no volumes are bound, tasks are left over."""
    free_devices: Mapping[str, int] = _gauge(
        "neuron_scheduler_free_devices", "Neuron devices that a pod could get now, by instance type.", "instance_type"
    )
    used_devices: Mapping[str, int] = _gauge(
        "neuron_scheduler_used_devices",
        "Neuron devices that pods hold, wholly or in part, by instance type.",
        "instance_type",
    )
    largest_free_block: Mapping[str, int] = _gauge(
        "neuron_scheduler_largest_free_block",
        "Devices in the largest free block of one node, by instance type: a larger request waits.",
        "instance_type",
    )
    free_blocks: Mapping[tuple[str, str], int] = _gauge(
        "neuron_scheduler_free_blocks",
        "Free blocks of Neuron devices, by instance type and by their size in devices. A block counts once, by its"
        " largest size. Blocks times size, summed up, are the free devices.",
        "instance_type",
        "size",
    )
    would_fit: Mapping[tuple[str, str], int] = _gauge(
        "neuron_scheduler_would_fit",
        "Pods with one container and this many Neuron devices, and no other needs, that fit now, by instance type and"
        " size. The sizes are alternatives: their sum means nothing.",
        "instance_type",
        "size",
    )
    stranded_devices: Mapping[str, int] = _gauge(
        "neuron_scheduler_stranded_devices",
        "Free Neuron devices that are left over when blocks are cut into the smallest size that a pod waits for, by"
        " instance type. 0 if no pod lacks devices.",
        "instance_type",
    )
    set_aside_devices: Mapping[str, int] = _gauge(
        "neuron_scheduler_set_aside_devices",
        "Free Neuron devices that are used last for a while, because kubelets have rejected pods, by instance type.",
        "instance_type",
    )
    withheld_devices: Mapping[tuple[str, str], int] = _gauge(
        "neuron_scheduler_withheld_devices",
        "Neuron devices that no pod holds and no pod can get now, by instance type and reason.",
        "instance_type",
        "reason",
    )


@attrs.define(eq=False)
class StateCollector:
    """Turns the state of the moment into metrics."""

    _state: Callable[[], State]
    _lease_name: str

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry asks this on registration, when the process has no state yet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        for field in attrs.fields(State):
            about, value = field.metadata, getattr(state, field.name)
            if field.name == "leader":
                value = {self._lease_name: int(value)}
            metric = about["family"](about["name"], about["text"], labels=about["labels"])
            for values, number in (value if isinstance(value, Mapping) else {(): value}).items():
                metric.add_metric((values,) if isinstance(values, str) else values, number)
            yield metric
