"""The metrics have kube-scheduler's names, labels and buckets; their number grows only with the fleet's variety."""

import ast
import inspect
import re
from pathlib import Path

import attrs
import pytest

from neuron_scheduler import __version__
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.state_metrics import State


def samples(metrics: Metrics) -> dict[str, float]:
    """Return every sample, keyed as it is written: `name{label="value"}`."""
    body, _ = metrics.exposition()
    lines = (line.rpartition(" ") for line in body.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_every_metric_has_a_writer() -> None:
    """One that nobody calls, or that `app` does not pass, would be 0 for ever."""
    package = Path(__file__).parents[2] / "neuron_scheduler"
    own, app = package / "telemetry" / "metrics.py", package / "app.py"
    others = "\n".join(path.read_text() for path in package.rglob("*.py") if path != own)
    methods = [name for name, member in vars(Metrics).items() if inspect.isfunction(member)]
    names = [*(field.name for field in attrs.fields(Metrics) if not field.init), *methods]
    used = [name for name in names if re.search(rf"\.{name}\b", own.read_text() if name.startswith("_") else others)]
    assert [name for name in names if name not in used and not name.startswith("__")] == []
    (state,) = [
        node
        for node in ast.walk(ast.parse(app.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == State.__name__
    ]
    assert {keyword.arg for keyword in state.keywords} == {field.name for field in attrs.fields(State)}


def test_an_attempt_is_counted_and_timed() -> None:
    """Results and profile are the labels, upstream's powers of two the buckets."""
    metrics = Metrics(profiles=("p", "q"))
    metrics.count_attempt("scheduled", "p", 0.0015)
    metrics.count_attempt("unschedulable", "p", 0.5)
    metrics.observe_decision(0.00001)
    seen = samples(metrics)
    assert seen['scheduler_schedule_attempts_total{profile="p",result="scheduled"}'] == 1
    assert seen['scheduler_schedule_attempts_total{profile="p",result="error"}'] == 0
    assert seen['scheduler_schedule_attempts_total{profile="q",result="scheduled"}'] == 0
    bucket = 'scheduler_scheduling_attempt_duration_seconds_bucket{{le="{}",profile="p",result="scheduled"}}'
    assert (seen[bucket.format("0.001")], seen[bucket.format("0.002")], seen[bucket.format("16.384")]) == (0, 1, 1)
    assert seen['scheduler_scheduling_algorithm_duration_seconds_bucket{le="0.001"}'] == 1


@pytest.mark.parametrize(("attempts", "label"), [(1, "1"), (14, "14"), (15, "15+"), (400, "15+")])
def test_a_scheduled_pod_is_labelled_with_its_attempts(attempts: int, label: str) -> None:
    """From 15 attempts on there is one label, as upstream."""
    metrics = Metrics()
    metrics.count_scheduled_pod(attempts=attempts, seconds=3)
    seen = samples(metrics)
    assert seen[f'scheduler_pod_scheduling_sli_duration_seconds_count{{attempts="{label}"}}'] == 1
    assert seen["scheduler_pod_scheduling_attempts_sum"] == attempts


def test_binding_volumes_is_counted_and_timed() -> None:
    """Binding volumes is the whole of the extension point PreBind."""
    metrics = Metrics()
    metrics.observe_volume_binding("p", 0.00015, failed=False)
    metrics.observe_volume_binding("p", 600.0, failed=True)
    seen = samples(metrics)
    name, labels = "scheduler_framework_extension_point_duration_seconds", 'extension_point="PreBind"'
    assert seen[f'{name}_bucket{{{labels},le="0.0002",profile="p",status="Success"}}'] == 1
    assert seen[f'{name}_sum{{{labels},profile="p",status="Error"}}'] == 600
    assert seen['scheduler_volume_scheduling_stage_error_total{operation="bind"}'] == 1


def test_names_of_kube_scheduler() -> None:
    """Labels and buckets of requests are upstream's."""
    metrics = Metrics(api_host="h")
    metrics.count_request("201", "POST", 0.02)
    seen = samples(metrics)
    assert seen['rest_client_requests_total{code="201",host="h",method="POST"}'] == 1
    name = "rest_client_request_duration_seconds_bucket"
    assert seen[f'{name}{{host="h",le="0.005",verb="POST"}}'] == 0
    assert seen[f'{name}{{host="h",le="0.025",verb="POST"}}'] == 1
    assert f'{name}{{host="h",le="60.0",verb="POST"}}' in seen


def test_the_version_is_shown() -> None:
    """The version is a label; Kubernetes' own name for that would make its mixin report a version mismatch."""
    seen = samples(Metrics())
    assert seen[f'neuron_scheduler_build_info{{version="{__version__}"}}'] == 1
    assert not any(name.startswith("kubernetes_build_info") for name in seen)


def test_the_state_is_asked_for_at_every_scrape() -> None:
    """A number, a truth value, a count, and values by one label or several are shown as they are then."""
    metrics = Metrics(lease_name="l")
    assert samples(metrics)['leader_election_master_status{name="l"}'] == 0
    metrics.ask(
        lambda: State(
            leader=True,
            pending_pods={"active": 2, "gated": 0},
            unknown_holders=7,
            neuron_pods_waiting={("capacity", "device", "16"): 18},
            log_lines_dropped=13,
        ),
        tuple,
    )
    assert {
        'leader_election_master_status{name="l"}': 1,
        'scheduler_pending_pods{queue="active"}': 2,
        'scheduler_pending_pods{queue="gated"}': 0,
        "neuron_scheduler_unknown_holders": 7,
        'neuron_scheduler_neuron_pods_waiting{cause="capacity",size="16",unit="device"}': 18,
        "neuron_scheduler_log_lines_dropped_total": 13,
    }.items() <= samples(metrics).items()


def test_the_process_itself_is_measured() -> None:
    """Memory and garbage collection are shown, and there are no `_created` series."""
    seen = samples(Metrics())
    assert seen["process_resident_memory_bytes"] > 0
    assert any(name.startswith("python_gc_") for name in seen)
    assert not any("_created" in name for name in seen)


@pytest.mark.parametrize(
    ("accept", "want"),
    [("", "text/plain"), ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text")],
)
def test_the_reader_chooses_the_format(accept: str, want: str) -> None:
    """A client that asks for OpenMetrics, as Prometheus does, gets it; others get text."""
    body, content_type = Metrics().exposition(accept)
    assert content_type.startswith(want)
    assert body.endswith(b"# EOF\n") == ("openmetrics" in want)
