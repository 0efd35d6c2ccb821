"""What the scheduler's ServiceAccount asked an API server for, by that server's own audit log."""

import json
from pathlib import Path
from typing import Final

from tests.control_plane.rest import Object

ACCOUNT: Final = "system:serviceaccount:kube-system:neuron-scheduler"
POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}],
}


def audit_flags(log: Path) -> tuple[str, ...]:
    """Return the flags with which an API server writes what the ServiceAccount asks for into a file."""
    policy = log.with_name("policy.yaml")
    policy.write_text(json.dumps(POLICY))
    return (f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking")


def audited(log: Path) -> list[Object]:
    """Return every request of the ServiceAccount for an object in the audit log, without an incomplete last line."""
    requests = [json.loads(line) for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [request for request in requests if "objectRef" in request]  # not what the API server serves
