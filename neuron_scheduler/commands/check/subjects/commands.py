"""
The commands that a finding recommends, as the scheduler was installed: by Helm or kubectl, for one road or the other.
"""

import shlex
from typing import Final

from neuron_scheduler.commands.check.subjects.known import AWS_CHART, AWS_RELEASE
from neuron_scheduler.commands.check.subjects.snapshot import Object, Snapshot

CHART: Final = "manifests/chart"
KEEPER: Final = "kubectl apply -k manifests/lease-watch"
INSTALL: Final = f"{KEEPER} && kubectl apply -k manifests/"
WRITERS: Final = "`writers` in manifests/base/admission_annotations.yaml (Helm: allocationWriters)"
NAMES: Final = "`names` in manifests/base/admission_pods.yaml (Helm: otherSchedulerNames)"


def apply(snapshot: Snapshot) -> str:
    """Return the command that restores our objects."""
    release = next((d.object for d in snapshot.ours if d.object.release not in ("", AWS_RELEASE)), None)
    if release is not None:
        words = ("helm", "upgrade", release.release, CHART, "--namespace", release.release_namespace)
        return shlex.join((*words, "--reset-then-reuse-values"))  # this version's chart may have values of its own
    only_extender = bool(snapshot.ours) and all(d.mode == "extender" for d in snapshot.ours)
    return f"kubectl apply -k manifests/{'default-scheduler' if only_extender else ''}"


def switch_off(release: str, namespace: str) -> str:
    """Return the command that removes the scheduler from AWS's Helm release, and leaves its device plugin."""
    words = ("helm", "upgrade", release, AWS_CHART, "--namespace", namespace)
    return shlex.join((*words, "--reuse-values", "--set", "scheduler.enabled=false"))


def removal(place: Object) -> str:
    """Return the command that removes the Deployment of another scheduler: by its Helm release, if it has one."""
    namespace = place.release_namespace or place.namespace
    if place.release == AWS_RELEASE:
        return switch_off(place.release, namespace)
    if place.release:
        return shlex.join(("helm", "uninstall", place.release, "--namespace", namespace))
    return f"kubectl delete deployment --namespace {place.namespace} {place.name}"
