"""What `kubectl kustomize` makes of `manifests/`, with components too, is well in the eyes of the check."""

from pathlib import Path
from typing import Any

import attrs
import pytest

from neuron_scheduler import __version__
from neuron_scheduler.commands.check import kinds
from neuron_scheduler.commands.check.report import SUBJECTS
from neuron_scheduler.commands.check.subjects import policies
from neuron_scheduler.commands.check.subjects.finding import NEEDS_ACTION
from neuron_scheduler.commands.check.subjects.snapshot import Lease, SeenWorkload, Snapshot, Specs
from tests.support.builders import pod
from tests.support.helm import Helm
from tests.support.kustomize import ROOT, customized, rendered
from tests.support.snapshots import HEALTHY
from tests.support.wire_objects import encoded

POLICY = "ValidatingAdmissionPolicy"


def snapshot_of(objects: dict[str, Any]) -> Snapshot:
    """Return a cluster with these objects, whose pods are ready."""
    config_maps = [item.get("data", {}) for item in objects.values() if item["kind"] == "ConfigMap"]
    (item,) = [item for item in objects.values() if item["kind"] == "Deployment"]
    workload = kinds.DEPLOYMENTS.decode(encoded(item)).value
    assert isinstance(workload, SeenWorkload)
    return attrs.evolve(
        HEALTHY,
        deployments=(attrs.evolve(kinds.with_configuration(workload, config_maps), ready=workload.replicas, behind=0),),
        lease=Lease(f"{workload.name}-5f6d-x_0a1b", 15, 1.0),
        pods=(),
        policies=of_kind(objects, POLICY),
        policy_bindings=of_kind(objects, f"{POLICY}Binding"),
    )


def of_kind(objects: dict[str, Any], kind: str) -> Specs:
    """Return the policies, or their bindings."""
    return {item["metadata"]["name"]: item["spec"] for item in objects.values() if item["kind"] == kind}


@pytest.mark.parametrize(
    ("road", "components", "names"),
    [
        ("my-scheduler", (), ("my-scheduler",)),
        ("my-scheduler", ("require-scheduler",), ("my-scheduler",)),
        ("my-scheduler", ("secure-metrics",), ("my-scheduler",)),
        ("my-scheduler", ("capacity-requests",), ("my-scheduler",)),
        ("my-scheduler", ("claims",), ("my-scheduler",)),
        ("my-scheduler", ("extender",), ("my-scheduler", "default-scheduler")),
        ("default-scheduler", (), ("default-scheduler",)),
        ("default-scheduler", ("kops", "extender-tls"), ("default-scheduler",)),
    ],
)
def test_each_road_is_well(road: str, components: tuple[str, ...], names: tuple[str, ...], tmp_path: Path) -> None:
    """Both roads and the components: no finding needs action, and pods need the names of the road."""
    folder = customized(road, tmp_path, *components) if components else ROOT / "manifests" / road
    snapshot = snapshot_of(rendered(folder) | rendered(ROOT / "manifests" / "lease-watch"))
    found = [finding for subject in SUBJECTS for finding in subject.findings(snapshot)]
    assert [finding for finding in found if finding.severity in NEEDS_ACTION] == []
    assert snapshot.scheduler_names == names
    assert "policies" in {finding.code for finding in policies.findings(snapshot)}


@pytest.mark.control_plane  # the built helm, without a server
@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ((), ("my-scheduler",)),
        (("customScheduler.fullnameOverride=batch",), ("batch",)),
        (("defaultScheduler.enabled=true",), ("my-scheduler", "default-scheduler")),
        (("enabled=true,components.claims=true",), ("my-scheduler",)),
        (("defaultScheduler.enabled=true", "customScheduler.enabled=false"), ("default-scheduler",)),
    ],
    ids=["custom", "another name", "both", "claims", "default"],
)
def test_the_chart_is_well(settings: tuple[str, ...], names: tuple[str, ...], tmp_path: Path) -> None:
    """With the values of AWS's commands, too."""
    flags = [f"--set=scheduler.{setting}" for setting in ("enabled=true", *settings)]
    snapshot = snapshot_of(Helm(tmp_path).rendered("--set=image.repository=neuron-scheduler", *flags))
    found = [finding for subject in SUBJECTS for finding in subject.findings(snapshot)]
    assert [finding for finding in found if finding.severity in NEEDS_ACTION] == []
    assert snapshot.scheduler_names == names
    assert [deployment.chart for deployment in snapshot.ours] == [f"neuron-scheduler-{__version__}"]


def test_pods_of_the_other_road() -> None:
    """On the road with the default scheduler nobody serves my-scheduler."""
    snapshot = snapshot_of(rendered(ROOT / "manifests" / "default-scheduler"))
    waiting = attrs.evolve(snapshot, pods=(pod("a", devices=4, scheduler_name="my-scheduler"),))
    codes = {finding.code for subject in SUBJECTS for finding in subject.findings(waiting)}
    assert "unknown-scheduler-name" in codes
