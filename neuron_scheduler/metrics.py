"""
What the process counts and measures, for Prometheus.

kube-scheduler's names, labels and buckets where it has the metric (`pkg/scheduler/metrics/metrics.go`), so that its
dashboards and alerts keep working; `neuron_scheduler_*` for what only we know. A metric that we could not fill
truthfully is absent rather than zero. Refuses pod names and anything else that grows with the workload as a label.

What happens is counted when it happens (the methods of `Metrics`); what is the case is asked for when someone looks
(`State`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from types import MappingProxyType
from typing import Final

import attrs
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

NONE: Final[Mapping[str, int]] = MappingProxyType({})
NO_PAIRS: Final[Mapping[tuple[str, str], int]] = MappingProxyType({})
RESULTS: Final = ("scheduled", "unschedulable", "error")
QUEUES: Final = ("active", "backoff", "unschedulable", "gated")
MOST_ATTEMPTS_TOLD_APART: Final = 15


@attrs.frozen
class State:
    """
    What is the case at one moment, as the composition root sees it.

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
        free_devices: wholly free devices by instance type.
        largest_free_block: devices in the largest free block of one node, by instance type.
        log_lines_dropped: log lines that stderr did not take, ever.
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
    free_devices: Mapping[str, int] = NONE
    largest_free_block: Mapping[str, int] = NONE
    log_lines_dropped: int = 0
    terms_left_out: int = 0


@attrs.define(eq=False)
class Metrics:
    """
    All metrics of one scheduler process, in a registry of their own.

    Attributes:
        profiles: the scheduler names that are served; each is there from the start, with zeros.
    """

    profiles: Sequence[str] = ("my-scheduler",)
    lease_name: str = "my-scheduler"
    api_host: str = ""
    _state: Callable[[], State] = State
    _registry: CollectorRegistry = attrs.field(factory=CollectorRegistry, init=False)
    _attempts: dict[tuple[str, str], Counter] = attrs.field(init=False)
    _attempt_seconds: dict[tuple[str, str], Histogram] = attrs.field(init=False)
    _algorithm_seconds: Histogram = attrs.field(init=False)
    _attempts_of_pod: Histogram = attrs.field(init=False)
    _sli_seconds: Callable[[str], Histogram] = attrs.field(init=False)
    _incoming: Callable[[str, str], Counter] = attrs.field(init=False)
    _requests: Callable[[str, str], Counter] = attrs.field(init=False)
    _pre_bind_seconds: Callable[[str, str], Histogram] = attrs.field(init=False)
    _volume_errors: Counter = attrs.field(init=False)
    _preemption_attempts: Counter = attrs.field(init=False)
    _preemption_victims: Histogram = attrs.field(init=False)
    _malformed: Callable[[str], Counter] = attrs.field(init=False)
    _watch_failures: Callable[[str], Counter] = attrs.field(init=False)
    _unhandled: Callable[[str], Counter] = attrs.field(init=False)
    _events_dropped: Counter = attrs.field(init=False)
    _stale_fence: Counter = attrs.field(init=False)
    _connections_dropped: Callable[[str], Counter] = attrs.field(init=False)
    _retries: Callable[[str], Counter] = attrs.field(init=False)
    _unexpected: Callable[[str], Counter] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # A `_created` series beside every counter would double the exposition for nothing.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves this one function untyped
        self._declare_scheduling()
        self._declare_volumes()
        self._declare_conversation()
        self._registry.register(_StateCollector(self))
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def _declare_scheduling(self) -> None:
        attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result.",
            ("result", "profile"),
            registry=self._registry,
        )
        seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (decision and binding).",
            ("result", "profile"),
            buckets=_exponential(0.001, 2, 15),
            registry=self._registry,
        )
        pairs = list(product(RESULTS, self.profiles))
        self._attempts = {pair: attempts.labels(*pair) for pair in pairs}
        self._attempt_seconds = {pair: seconds.labels(*pair) for pair in pairs}
        self._algorithm_seconds = Histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds.",
            buckets=_exponential(0.001, 2, 15),
            registry=self._registry,
        )
        self._attempts_of_pod = Histogram(
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            buckets=_exponential(1, 2, 5),
            registry=self._registry,
        )
        sli = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Seconds from a pod's first entry into the queue to its binding, without the time it was gated.",
            ("attempts",),
            buckets=_exponential(0.01, 2, 20),
            registry=self._registry,
        )
        self._sli_seconds = cache(sli.labels)
        incoming = Counter(
            "scheduler_queue_incoming_pods",
            "Pods added to the scheduling queues, by event and queue.",
            ("queue", "event"),
            registry=self._registry,
        )
        self._incoming = cache(incoming.labels)
        self._preemption_attempts = Counter(
            "scheduler_preemption_attempts",
            "Attempts to find pods to preempt for a pod that fits nowhere.",
            registry=self._registry,
        )
        self._preemption_victims = Histogram(
            "scheduler_preemption_victims",
            "Number of pods that one preemption asks to leave.",
            buckets=_exponential(1, 2, 7),
            registry=self._registry,
        )

    def _declare_volumes(self) -> None:
        extension_point = Histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Latency of a pod's extension point: of PreBind, where its volumes are written and waited for.",
            ("extension_point", "status", "profile"),
            buckets=_exponential(0.0001, 2, 12),
            registry=self._registry,
        )
        self._pre_bind_seconds = cache(lambda status, profile: extension_point.labels("PreBind", status, profile))
        self._volume_errors = Counter(
            "scheduler_volume_scheduling_stage_error",
            "Volume scheduling stage error count.",
            ("operation",),
            registry=self._registry,
        ).labels("bind")

    def _declare_conversation(self) -> None:
        requests = Counter(
            "rest_client_requests",
            "HTTP requests to the API server, by status code, method and host.",
            ("code", "method", "host"),
            registry=self._registry,
        )
        self._requests = cache(lambda code, method: requests.labels(code, method, self.api_host))
        malformed = Counter(
            "neuron_scheduler_malformed_objects",
            "Objects from the API server that could not be read in full and were set aside.",
            ("resource",),
            registry=self._registry,
        )
        self._malformed = cache(malformed.labels)
        watch_failures = Counter(
            "neuron_scheduler_watch_failures",
            "Lists and watches that failed, by resource: a few an hour are usual, a few a minute are not.",
            ("resource",),
            registry=self._registry,
        )
        self._watch_failures = cache(watch_failures.labels)
        unhandled = Counter(
            "neuron_scheduler_unhandled_objects",
            "Objects that were set aside because the scheduler failed on them, by resource: a bug of the scheduler.",
            ("resource",),
            registry=self._registry,
        )
        self._unhandled = cache(unhandled.labels)
        self._events_dropped = Counter(
            "neuron_scheduler_events_dropped",
            "Events not sent because their queue was full.",
            registry=self._registry,
        )
        self._stale_fence = Counter(
            "neuron_scheduler_stale_fence_refusals",
            "Bindings that the API server refused by an old state of the Lease, which this replica held.",
            registry=self._registry,
        )
        connections_dropped = Counter(
            "neuron_scheduler_connections_dropped",
            "Connections to the health and metrics endpoints that were ended without an answer, by reason:"
            " crowded (too many waited), slow (the client took too long).",
            ("reason",),
            registry=self._registry,
        )
        self._connections_dropped = cache(connections_dropped.labels)
        retries = Counter(
            "neuron_scheduler_write_retries",
            "Writes that are sent again because their outcome is in doubt or the API server was busy.",
            ("write",),
            registry=self._registry,
        )
        self._retries = cache(retries.labels)
        unexpected = Counter(
            "neuron_scheduler_unexpected_errors",
            "Exceptions in the work on one pod that nobody expected; each is a defect, and the log has its traceback.",
            ("task",),
            registry=self._registry,
        )
        self._unexpected = cache(unexpected.labels)

    @property
    def state(self) -> State:
        """The present state, asked for anew."""
        return self._state()

    def ask(self, state: Callable[[], State]) -> None:
        """Ask this function for the state at every scrape; it must be quick, since the event loop waits for it."""
        self._state = state

    def attempted(self, result: str, profile: str, seconds: float) -> None:
        """Count one attempt that ended as `scheduled`, `unschedulable` or `error`, from decision to binding."""
        self._attempts[result, profile].inc()
        self._attempt_seconds[result, profile].observe(seconds)

    def decided(self, seconds: float) -> None:
        """Count one decision, whatever it was."""
        self._algorithm_seconds.observe(seconds)

    def scheduled(self, *, attempts: int, seconds: float) -> None:
        """Count a bound pod that needed so many attempts and waited so long since it was first queued, ungated."""
        self._attempts_of_pod.observe(attempts)
        self._sli_seconds(str(attempts) if attempts < MOST_ATTEMPTS_TOLD_APART else "15+").observe(seconds)

    def queued(self, queue: str, event: str) -> None:
        """Count a pod that enters a queue because of an event (`PodAdd`, `ScheduleAttemptFailure`, `NodeAdd`, ...)."""
        self._incoming(queue, event).inc()

    def volumes_bound(self, profile: str, seconds: float, *, failed: bool) -> None:
        """Count a pod whose volumes were bound before it, or could not be, after so long."""
        self._pre_bind_seconds("Error" if failed else "Success", profile).observe(seconds)
        if failed:
            self._volume_errors.inc()

    def preemption_attempted(self) -> None:
        """Count a search for pods to preempt, whatever it found."""
        self._preemption_attempts.inc()

    def preempted(self, victims: int) -> None:
        """Count a preemption and its victims."""
        self._preemption_victims.observe(victims)

    def requested(self, method: str, code: str) -> None:
        """Count one answer of the API server; `code` is the status, or `<error>` where there was none."""
        self._requests(code, method).inc()

    def malformed(self, resource: str) -> None:
        """Count an object of this resource (`pods`, `nodes`) that could not be read."""
        self._malformed(resource).inc()

    def watch_failed(self, resource: str) -> None:
        """Count a list or watch of this resource that failed."""
        self._watch_failures(resource).inc()

    def unhandled(self, resource: str) -> None:
        """Count an object of this resource that the scheduler failed on."""
        self._unhandled(resource).inc()

    def event_dropped(self) -> None:
        """Count an Event that was not sent."""
        self._events_dropped.inc()

    def fence_stale(self) -> None:
        """Count a Binding that was refused by an old state of the Lease."""
        self._stale_fence.inc()

    def connection_dropped(self, reason: str) -> None:
        """Count a connection to our own endpoints that was ended without an answer: `crowded` or `slow`."""
        self._connections_dropped(reason).inc()

    def retried(self, write: str) -> None:
        """Count a write that is sent again: `binding`, `condition`, `event` or `eviction`."""
        self._retries(write).inc()

    def unexpected(self, task: str) -> None:
        """Count an exception in the work on one pod that nobody expected."""
        self._unexpected(task).inc()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as Prometheus reads them, and their content type, in the format `accept` asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


@attrs.define(eq=False)
class _StateCollector:
    """Turns the state of the moment into metrics."""

    _metrics: Metrics

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the registry asks this on registration, when the process has no state yet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Yield one family a metric."""
        state = self._metrics.state
        queues = dict.fromkeys(QUEUES, 0) | dict(state.pending_pods)
        yield _by("scheduler_pending_pods", "Pending pods, by queue.", "queue", queues)
        unschedulable = GaugeMetricFamily(
            "scheduler_unschedulable_pods",
            "Unschedulable pods, by the plugin that refused them last.",
            labels=("plugin", "profile"),
        )
        for pair, count in state.unschedulable_pods.items():
            unschedulable.add_metric(pair, count)
        yield unschedulable
        yield _by("scheduler_cache_size", "Nodes, pods and assumed pods in the cache.", "type", state.cache_size)
        yield _by(
            "leader_election_master_status",
            "1 if this process is the leader, 0 if it stands by.",
            "name",
            {self._metrics.lease_name: int(state.leader)},
        )
        for name, text, number in (
            ("unknown_holders", "Bound pods whose Neuron allocation cannot be read.", state.unknown_holders),
            ("conflicting_cores", "Neuron cores claimed by more than one pod.", state.conflicting_cores),
            ("binds_in_flight", "Bindings without a definite outcome, those in doubt included.", state.binds_in_flight),
            ("binds_unknown", "Bindings in doubt, which are sent again.", state.binds_unknown),
            ("terms_left_out", "Affinity terms of bound pods beyond what a namespace may have.", state.terms_left_out),
            ("waiting_for_volumes", "Pods that wait for their volumes to be bound.", state.waiting_for_volumes),
        ):
            yield GaugeMetricFamily(f"neuron_scheduler_{name}", text, value=number)
        yield CounterMetricFamily(
            "neuron_scheduler_log_lines_dropped", "Log lines that stderr did not take.", value=state.log_lines_dropped
        )
        for name, text, numbers in (
            ("free_devices", "Wholly free Neuron devices, by instance type.", state.free_devices),
            (
                "largest_free_block",
                "Devices in the largest free block of one node, by instance type: a larger request waits.",
                state.largest_free_block,
            ),
        ):
            yield _by(f"neuron_scheduler_{name}", text, "instance_type", numbers)


def _by(name: str, text: str, label: str, numbers: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for value, number in numbers.items():
        family.add_metric((value,), number)
    return family


def _exponential(start: float, factor: int, count: int) -> tuple[float, ...]:
    """Return the upper bounds as `prometheus.ExponentialBuckets` does."""
    return tuple(start * factor**power for power in range(count))
