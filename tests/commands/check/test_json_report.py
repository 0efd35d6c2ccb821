"""The report for scripts: its fields are fixed."""

import json

import attrs

from neuron_scheduler import __version__
from neuron_scheduler.commands.check.report import content, encode, report_on
from neuron_scheduler.commands.check.subjects.snapshot import Unread
from tests.support.snapshots import BEFORE, HEALTHY


def test_the_whole_of_it() -> None:
    """All fields of a healthy cluster, and of one finding."""
    found = content(report_on(HEALTHY))
    findings = found.pop("findings")
    assert found == {
        "schemaVersion": 1,
        "version": __version__,
        "exitCode": 0,
        "server": "https://10.0.0.1:443",
        "source": "kubeconfig test",
        "kubernetesVersion": "v1.36.2",
        "namespace": "kube-system",
        "schedulerNames": ["my-scheduler"],
        "counts": {"ok": len(findings), "note": 0, "not-checked": 0, "warning": 0, "error": 0},
        "machines": [
            {"instanceType": "inf2.24xlarge", "nodes": 1, "devices": 6, "cores": 12},
            {"instanceType": "trn1.32xlarge", "nodes": 2, "devices": 16, "cores": 32},
        ],
    }
    assert findings[0] == {
        "subject": "api-server",
        "code": "version",
        "severity": "ok",
        "message": "Kubernetes v1.36.2 (supported: 1.33 to 1.37)",
        "advice": "",
        "command": "",
        "objects": [],
    }


def test_what_is_unknown_is_null() -> None:
    """The version that could not be read; no machines without nodes."""
    unread = Unread("list something")
    found = content(report_on(attrs.evolve(BEFORE, version=unread, nodes=unread)))
    assert (found["kubernetesVersion"], found["machines"], found["exitCode"]) == (None, [], 1)


def test_it_is_json() -> None:
    """The text is what `content` returns."""
    report = report_on(HEALTHY)
    assert json.loads(encode(report)) == content(report)
