"""
The commands that a finding recommends, as the scheduler was installed: by Helm or kubectl, for one road or the other.
"""

import shlex
from typing import Final

from neuron_scheduler.commands.check.subjects.known import AWS_CHART, AWS_RELEASE, NAMESPACE, OUR_LABEL
from neuron_scheduler.commands.check.subjects.snapshot import SeenWorkload, Snapshot

CHART: Final = "manifests/chart"
KEEPER: Final = "kubectl apply -k manifests/lease-watch"
APPLY: Final = "kubectl apply -k manifests/"
WITHOUT_NAMESPACE: Final = "sed -i.bak '/^namespace:/d' manifests/kustomization.yaml"
INSTALL: Final = f"{KEEPER} && {APPLY}"
WRITERS: Final = "`writers`, by a patch in manifests/kustomization.yaml (Helm: allocationWriters)"
ADD_CLAIMS: Final = "Add components/claims to manifests/kustomization.yaml (Helm: components.claims=true)"
NAMES: Final = "`names`, by a patch in manifests/kustomization.yaml (Helm: otherSchedulerNames)"


def apply(snapshot: Snapshot) -> str:
    helm = next((deployment for deployment in snapshot.ours if deployment.release), None)
    if helm is not None:
        words = ("helm", "upgrade", helm.release, CHART, "--namespace", helm.release_namespace)
        return shlex.join((*words, "--reset-then-reuse-values"))  # this version's chart may have values of its own
    if any(deployment.namespace != NAMESPACE for deployment in snapshot.ours):
        return f"{WITHOUT_NAMESPACE} && {APPLY}"
    return APPLY


def removal_elsewhere(deployment: SeenWorkload) -> str:
    """Return the command that removes what a `namespace:` in the kustomization has installed."""
    kinds = "deployment,service,configmap,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget"
    return f"kubectl delete {kinds} --namespace {deployment.namespace} --selector {OUR_LABEL}"


def removal(deployment: SeenWorkload) -> str:
    """
    Return the command that removes the Deployment of another scheduler: by its Helm release, if it has one.

    AWS's release also has the device plugin, so only its scheduler is switched off. Without the chart's version, Helm
    would take the newest one and change the plugin; then there is no command.
    """
    namespace = deployment.release_namespace or deployment.namespace
    if deployment.release == AWS_RELEASE:
        version = deployment.chart.removeprefix(f"{AWS_RELEASE}-")
        words = ("helm", "upgrade", AWS_RELEASE, AWS_CHART, "--namespace", namespace, "--version", version)
        return shlex.join((*words, "--reuse-values", "--set", "scheduler.enabled=false")) if version else ""
    if deployment.release:
        return shlex.join(("helm", "uninstall", deployment.release, "--namespace", namespace))
    return f"kubectl delete deployment --namespace {deployment.namespace} {deployment.name}"
