"""
What the process counts and measures, for Prometheus.

kube-scheduler's names, labels and buckets where it has the metric (`pkg/scheduler/metrics/metrics.go`), so that its
dashboards and alerts keep working; `neuron_scheduler_*` for what only we know. A metric that we could not fill
truthfully is absent. No label grows with the workload.
"""
# ruff: noqa: RUF009 - each declaration returns an attrs field, which ruff cannot see

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any, Final

import attrs
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    exposition as plain_text,
)
from prometheus_client.openmetrics import exposition as open_metrics

from neuron_scheduler import __version__
from neuron_scheduler.telemetry.state_metrics import State, StateCollector

RESULTS: Final = ("scheduled", "unschedulable", "error")
MOST_DISTINCT_ATTEMPTS: Final = 15

_WRITERS: Final[Mapping[str, Callable[[CollectorRegistry], bytes]]] = {
    open_metrics.CONTENT_TYPE_LATEST: open_metrics.generate_latest,
    plain_text.CONTENT_TYPE_PLAIN_0_0_4: plain_text.generate_latest,
}


def counter(name: str, text: str, *labels: str) -> Any:
    """Declare a function that adds one to the counter; its arguments are the values of the labels."""

    def create(registry: CollectorRegistry) -> Callable[..., None]:
        if not labels:
            return Counter(name, text, registry=registry).inc
        child = cache(Counter(name, text, labels, registry=registry).labels)

        def count(*values: str) -> None:
            child(*values).inc()

        return count

    return _field(create)


def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Any:
    return _field(lambda registry: Histogram(name, text, buckets=buckets, registry=registry).observe)


def counters(name: str, text: str, *labels: str) -> Any:
    return _field(lambda registry: cache(Counter(name, text, labels, registry=registry).labels))


def histograms(name: str, text: str, *labels: str, buckets: tuple[float, ...]) -> Any:
    return _field(lambda registry: cache(Histogram(name, text, labels, buckets=buckets, registry=registry).labels))


def doubling(start: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of buckets as `prometheus.ExponentialBuckets` does with the factor 2."""
    return tuple(start * 2**power for power in range(count))


def _field(create: Callable[[CollectorRegistry], Callable[..., Any]]) -> Any:
    return attrs.field(init=False, metadata={"metric": create})


@attrs.define(eq=False)
class Metrics:
    """
    All metrics of one scheduler process, in a registry of their own.

    A metric is declared once, here. The order of the declarations is that of /metrics.

    Attributes:
        profiles: the scheduler names that are served; each is there from the start, with zeros.
    """

    profiles: Sequence[str] = ("my-scheduler",)
    lease_name: str = "my-scheduler"
    api_host: str = ""
    _state: Callable[[], State] = State
    prepare: Callable[[], Iterable[None]] = tuple
    _registry: CollectorRegistry = attrs.field(factory=CollectorRegistry, init=False)

    _attempts: Callable[[str, str], Counter] = counters(
        "scheduler_schedule_attempts", "Attempts to schedule pods, by result.", "result", "profile"
    )
    _attempt_seconds: Callable[[str, str], Histogram] = histograms(
        "scheduler_scheduling_attempt_duration_seconds",
        "Scheduling attempt latency in seconds (decision and binding).",
        "result",
        "profile",
        buckets=doubling(0.001, 15),
    )
    observe_decision: Callable[[float], None] = histogram(
        "scheduler_scheduling_algorithm_duration_seconds",
        "Scheduling algorithm latency in seconds.",
        doubling(0.001, 15),
    )
    """Count one decision, whatever its outcome, and its seconds."""
    _observe_attempts_of_pod: Callable[[int], None] = histogram(
        "scheduler_pod_scheduling_attempts", "Number of attempts to successfully schedule a pod.", doubling(1, 5)
    )
    _sli_seconds: Callable[[str], Histogram] = histograms(
        "scheduler_pod_scheduling_sli_duration_seconds",
        "Seconds from a pod's first entry into the queue to its binding, without the time it was gated.",
        "attempts",
        buckets=doubling(0.01, 20),
    )
    count_incoming_pod: Callable[[str, str], None] = counter(
        "scheduler_queue_incoming_pods", "Pods added to the scheduling queues, by event and queue.", "queue", "event"
    )
    """Count a pod that enters a queue because of an event (`PodAdd`, `ScheduleAttemptFailure`, `NodeAdd`, ...)."""
    count_preemption_attempt: Callable[[], None] = counter(
        "scheduler_preemption_attempts", "Attempts to find pods to preempt for a pod that fits nowhere."
    )
    observe_victims: Callable[[int], None] = histogram(
        "scheduler_preemption_victims", "Number of pods that were evicted for one pod.", doubling(1, 7)
    )
    _extension_point_seconds: Callable[[str, str, str], Histogram] = histograms(
        "scheduler_framework_extension_point_duration_seconds",
        "Latency for running all plugins of a specific extension point. PreBind: of each pod with volumes, which are"
        " written and waited for there.",
        "extension_point",
        "status",
        "profile",
        buckets=doubling(0.0001, 12),
    )
    _volume_errors: Callable[[str], Counter] = counters(
        "scheduler_volume_scheduling_stage_error", "Volume scheduling stage error count.", "operation"
    )
    _count_request: Callable[[str, str, str], None] = counter(
        "rest_client_requests",
        "HTTP requests to the API server, by status code, method and host.",
        "code",
        "method",
        "host",
    )
    _request_seconds: Callable[[str, str], Histogram] = histograms(
        "rest_client_request_duration_seconds",
        "Request latency in seconds, by verb and host: until the head of the answer, without lists and watches.",
        "verb",
        "host",
        buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
    )
    count_malformed: Callable[[str], None] = counter(
        "neuron_scheduler_malformed_objects",
        "Objects from the API server that could not be read in full and were skipped.",
        "resource",
    )
    count_watch_failure: Callable[[str], None] = counter(
        "neuron_scheduler_watch_failures",
        "Lists and watches that failed, by resource: a few an hour are usual, a few a minute are not.",
        "resource",
    )
    count_unhandled: Callable[[str], None] = counter(
        "neuron_scheduler_unhandled_objects",
        "Objects that were skipped because their handling raised an exception, by resource: a bug of the scheduler.",
        "resource",
    )
    count_dropped_event: Callable[[], None] = counter(
        "neuron_scheduler_events_dropped", "Events not sent because their queue was full."
    )
    count_stale_fence: Callable[[], None] = counter(
        "neuron_scheduler_stale_fence_refusals",
        "Bindings that the API server refused because of an old state of the Lease, although this replica held it.",
    )
    count_dropped_connection: Callable[[str], None] = counter(
        "neuron_scheduler_connections_dropped",
        "Connections to our own ports that were ended without an answer, by reason: crowded (too many waited), slow"
        " (the client took too long), refused (of the extender: too many, or TLS failed).",
        "reason",
    )
    count_retry: Callable[[str], None] = counter(
        "neuron_scheduler_write_retries",
        "Writes that are sent again because their outcome is in doubt or the API server was busy.",
        "write",
    )
    """Count a write that is sent again: `binding`, `condition`, `event` or `eviction`."""
    count_unexpected_error: Callable[[str], None] = counter(
        "neuron_scheduler_unexpected_errors",
        "Unexpected exceptions in the work on one pod; each is a defect, and the log has its traceback.",
        "task",
    )
    count_rejection: Callable[[str], None] = counter(
        "neuron_scheduler_pods_rejected",
        "Pods that their nodes rejected after they were bound, by the kubelet's reason.",
        "reason",
    )
    count_unread_rejection: Callable[[], None] = counter(
        "neuron_scheduler_rejections_unread",
        "Pods that were gone before they started; it is unknown whether their nodes rejected them.",
    )
    count_capacity_request: Callable[[str], None] = counter(
        "neuron_scheduler_capacity_requests_ended",
        "Machines that an autoscaler was asked for, by how that ended: served, withdrawn, given_up.",
        "outcome",
    )
    count_extender_request: Callable[[str, str], None] = counter(
        "neuron_scheduler_extender_requests",
        "Requests of kube-scheduler to the extender, by verb and HTTP status code; 499: the client hung up.",
        "verb",
        "code",
    )
    """Count an answered request; `verb` is `none` for a path or an HTTP message that is none of the protocol."""
    extender_seconds: Callable[[str], Histogram] = histograms(
        "neuron_scheduler_extender_request_duration_seconds",
        "Seconds from the head of a request to the extender until its answer is sent, by verb.",
        "verb",
        buckets=doubling(0.001, 14),
    )
    count_extender_binding: Callable[[str], None] = counter(
        "neuron_scheduler_extender_bindings",
        "Calls of kube-scheduler's to bind a pod, by result: bound, or failed with a sentence.",
        "result",
    )

    def __attrs_post_init__(self) -> None:
        # A `_created` series beside every counter would double the exposition for nothing.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves this one function untyped
        for field in attrs.fields(type(self)):
            if "metric" in field.metadata:
                setattr(self, field.name, field.metadata["metric"](self._registry))
        for labels in product(RESULTS, self.profiles):  # these series exist before anything is counted
            self._attempts(*labels)
            self._attempt_seconds(*labels)
        self._volume_errors("bind")
        build = Info(
            "neuron_scheduler_build", "The version of the scheduler; the value is always 1.", registry=self._registry
        )
        build.info({"version": __version__})
        self._registry.register(StateCollector(lambda: self._state(), self.lease_name))  # noqa: PLW0108 - `ask` replaces it
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def ask(self, state: Callable[[], State], prepare: Callable[[], Iterable[None]]) -> None:
        """Ask for the state at every scrape, after `prepare` has done in small steps what takes longer."""
        self._state, self.prepare = state, prepare

    def count_attempt(self, result: str, profile: str, seconds: float) -> None:
        """Count one attempt that ended as `scheduled`, `unschedulable` or `error`, from decision to binding."""
        self._attempts(result, profile).inc()
        self._attempt_seconds(result, profile).observe(seconds)

    def count_scheduled_pod(self, *, attempts: int, seconds: float) -> None:
        """Count a bound pod: its attempts, and the seconds since it was first queued, without the time it was gated."""
        self._observe_attempts_of_pod(attempts)
        self._sli_seconds(str(attempts) if attempts < MOST_DISTINCT_ATTEMPTS else "15+").observe(seconds)

    def observe_volume_binding(self, profile: str, seconds: float, *, failed: bool) -> None:
        """Count a pod whose volumes were bound before it, or could not be, and the seconds that it took."""
        self._extension_point_seconds("PreBind", "Error" if failed else "Success", profile).observe(seconds)
        if failed:
            self._volume_errors("bind").inc()

    def count_request(self, code: str, method: str, seconds: float | None) -> None:
        """Count one answer of the API server; `code` is the status, or `<error>` where there was none."""
        self._count_request(code, method, self.api_host)
        if seconds is not None:  # else it was a list or a watch
            self._request_seconds(method, self.api_host).observe(seconds)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics as Prometheus reads them, and their content type, in the format `accept` asks for."""
        content_type = format_of(accept)
        return _WRITERS[content_type](self._registry), content_type


def format_of(accept: str) -> str:
    """Return the content type for a client's `Accept`; the library's own choice repeats what the client names."""
    wants_open = "application/openmetrics-text" in accept.lower()
    return open_metrics.CONTENT_TYPE_LATEST if wants_open else plain_text.CONTENT_TYPE_PLAIN_0_0_4
