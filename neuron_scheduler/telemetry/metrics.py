"""
What the process counts and measures, for Prometheus.

kube-scheduler's names, labels and buckets where it has the metric (`pkg/scheduler/metrics/metrics.go`), so that its
dashboards and alerts keep working; `neuron_scheduler_*` for what only we know. A metric that we could not fill
truthfully is absent rather than zero. Refuses pod names and anything else that grows with the workload as a label.

Events are counted when they happen, by the methods of `Metrics`. The present state is read at each scrape
(`state_metrics`).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product
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

from neuron_scheduler.telemetry.state_metrics import State, StateCollector

RESULTS: Final = ("scheduled", "unschedulable", "error")
MOST_ATTEMPTS_TOLD_APART: Final = 15


def _nothing_to_prepare() -> Iterator[None]:
    yield from ()


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
    _prepared: Callable[[], Iterator[None]] = _nothing_to_prepare
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
    _rejected: Callable[[str], Counter] = attrs.field(init=False)
    _rejections_unread: Counter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # A `_created` series beside every counter would double the exposition for nothing.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves this one function untyped
        self._declare_scheduling()
        self._declare_volumes()
        self._declare_conversation()
        self._declare_faults()
        self._declare_rejections()
        self._registry.register(StateCollector(lambda: self._state(), self.lease_name))  # noqa: PLW0108 - `ask` replaces it
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
        self._incoming = self._counter(
            "scheduler_queue_incoming_pods",
            "Pods added to the scheduling queues, by event and queue.",
            "queue",
            "event",
        )
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

    def _declare_faults(self) -> None:
        self._malformed = self._counter(
            "neuron_scheduler_malformed_objects",
            "Objects from the API server that could not be read in full and were set aside.",
            "resource",
        )
        self._watch_failures = self._counter(
            "neuron_scheduler_watch_failures",
            "Lists and watches that failed, by resource: a few an hour are usual, a few a minute are not.",
            "resource",
        )
        self._unhandled = self._counter(
            "neuron_scheduler_unhandled_objects",
            "Objects that were set aside because the scheduler failed on them, by resource: a bug of the scheduler.",
            "resource",
        )
        self._events_dropped = Counter(
            "neuron_scheduler_events_dropped",
            "Events not sent because their queue was full.",
            registry=self._registry,
        )
        self._stale_fence = Counter(
            "neuron_scheduler_stale_fence_refusals",
            "Bindings that the API server refused because of an old state of the Lease, although this replica held it.",
            registry=self._registry,
        )
        self._connections_dropped = self._counter(
            "neuron_scheduler_connections_dropped",
            "Connections to the health and metrics endpoints that were ended without an answer, by reason:"
            " crowded (too many waited), slow (the client took too long).",
            "reason",
        )
        self._retries = self._counter(
            "neuron_scheduler_write_retries",
            "Writes that are sent again because their outcome is in doubt or the API server was busy.",
            "write",
        )
        self._unexpected = self._counter(
            "neuron_scheduler_unexpected_errors",
            "Unexpected exceptions in the work on one pod; each is a defect, and the log has its traceback.",
            "task",
        )

    def _declare_rejections(self) -> None:
        self._rejected = self._counter(
            "neuron_scheduler_pods_rejected",
            "Pods that their nodes rejected after they were bound, by the kubelet's reason.",
            "reason",
        )
        self._rejections_unread = Counter(
            "neuron_scheduler_rejections_unread",
            "Pods that left before they started, of which it was not found out whether their nodes rejected them.",
            registry=self._registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Callable[..., Counter]:
        """Declare a counter; return a function from label values to the counter with these labels."""
        return cache(Counter(name, text, labels, registry=self._registry).labels)

    def ask(self, state: Callable[[], State], prepared: Callable[[], Iterator[None]] = _nothing_to_prepare) -> None:
        """
        Ask this function for the state at every scrape.

        It must be quick, since the event loop waits for it; what takes longer is for `prepared`, in small steps.
        """
        self._state, self._prepared = state, prepared

    def prepared(self) -> Iterator[None]:
        """Prepare for an exposition; yields whenever others may run."""
        return self._prepared()

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
        """Count an unexpected exception in the work on one pod."""
        self._unexpected(task).inc()

    def rejected(self, reason: str) -> None:
        """Count a pod that its node rejected, by one of few reasons."""
        self._rejected(reason).inc()

    def rejection_unread(self) -> None:
        """Count a pod that may have been rejected, and nobody knows."""
        self._rejections_unread.inc()

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as Prometheus reads them, and their content type, in the format `accept` asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


def _exponential(start: float, factor: int, count: int) -> tuple[float, ...]:
    """Return the upper bounds as `prometheus.ExponentialBuckets` does."""
    return tuple(start * factor**power for power in range(count))
