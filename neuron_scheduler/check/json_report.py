"""
The report for scripts. `schemaVersion` grows when a field changes its meaning or goes; new fields and codes may come.

    {"schemaVersion": 1, "version": "0.1.0", "exitCode": 1, "server": "https://...", "source": "kubeconfig ...",
     "kubernetesVersion": "v1.36.2", "namespace": "kube-system", "schedulerNames": ["my-scheduler"],
     "counts": {"ok": 7, "note": 1, "not-checked": 0, "warning": 1, "error": 0},
     "machines": [{"instanceType": "trn1.32xlarge", "nodes": 4, "devices": 16, "cores": 32}],
     "findings": [{"subject": "nodes", "code": "nodes-without-device-plugin", "severity": "warning",
                   "message": "...", "advice": "...", "command": "...", "objects": ["trn1-c"]}]}

`kubernetesVersion` is null if it could not be read; `devices` and `cores` are those of one node.
"""

import json
from typing import Any, Final

import attrs

from neuron_scheduler.check.report import Report
from neuron_scheduler.check.subjects.finding import Severity
from neuron_scheduler.check.subjects.nodes import machines
from neuron_scheduler.check.subjects.snapshot import Unread

SCHEMA_VERSION: Final = 1


def encode(report: Report) -> str:
    """Return the report as JSON text."""
    return json.dumps(content(report), indent=2)


def content(report: Report) -> dict[str, Any]:
    """Return the report as JSON values."""
    snapshot = report.snapshot
    nodes = () if isinstance(snapshot.nodes, Unread) else snapshot.nodes
    return {
        "schemaVersion": SCHEMA_VERSION,
        "version": snapshot.program_version,
        "exitCode": report.exit_code,
        "server": snapshot.server,
        "source": snapshot.source,
        "kubernetesVersion": None if isinstance(snapshot.version, Unread) else snapshot.version,
        "namespace": snapshot.namespace,
        "schedulerNames": list(snapshot.scheduler_names),
        "counts": {severity.value: report.count(severity) for severity in Severity},
        "machines": [
            {"instanceType": kind.instance_type, "nodes": kind.nodes, "devices": kind.devices, "cores": kind.cores}
            for kind in machines(nodes)
        ],
        "findings": [
            {"subject": subject.name, **attrs.asdict(finding, value_serializer=_plain)}
            for subject, findings in report.sections
            for finding in findings
        ],
    }


def _plain(_owner: object, _field: object, value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
