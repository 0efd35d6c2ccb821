"""
The names of objects: ours, and those of AWS's manifests and chart.

The Deployments of both roads keep AWS's names (decision 13), and are told apart from AWS's by what they run.
"""

from typing import Final

OUR_LABEL: Final = "app.kubernetes.io/name=neuron-scheduler"
OUR_NAME: Final = "neuron-scheduler"
"""Of our ServiceAccount and of other objects; with a suffix where a kind has several."""
NAMESPACE: Final = "kube-system"
"""Where the scheduler is, or will be, installed: its rights and policies are for this namespace."""
ACCOUNT: Final = f"{NAMESPACE}/{OUR_NAME}"
USERNAME: Final = f"system:serviceaccount:{NAMESPACE}:{OUR_NAME}"
LEASE: Final = "my-scheduler"
AWS_SCHEDULER: Final = "my-scheduler"
EXTENDER: Final = "k8s-neuron-scheduler"
"""Deployment on the road with the default scheduler, AWS's and ours."""

LEADER: Final = "neuron-scheduler-leader"
STALE_FENCE: Final = "sees an old state of Lease"
"""In the condition of a pod whose Binding was refused by mistake."""
ALLOCATIONS: Final = "neuron-scheduler-allocations"
NODE_NAME: Final = "neuron-scheduler-node-name"
NAME: Final = "neuron-scheduler-name"
CAPACITY: Final = "neuron-scheduler-capacity"
"""The namespace in which machines are asked for; also its PriorityClass, its policy, and its pods' schedulerName."""
CLAIMS: Final = "neuron-scheduler-claims"
"""Installed only with the component `claims`."""
POLICIES: Final = (LEADER, ALLOCATIONS, NODE_NAME, NAME)
KEEPER: Final = "neuron-scheduler-lease-watch"

AWS_RELEASE: Final = "neuron-helm-chart"
AWS_CHART: Final = "oci://public.ecr.aws/neuron/neuron-helm-chart"
PLUGIN: Final = "neuron-device-plugin"
"""In the names of AWS's DaemonSet, of its image and of its ServiceAccount."""
PLUGIN_LABEL: Final = ("name", "neuron-device-plugin-ds")

AUTO_MODE: Final = ("eks.amazonaws.com/compute-type", "auto")
"""The label of EKS Auto Mode's nodes."""


def username(account: str) -> str:
    return f"system:serviceaccount:{account.replace('/', ':')}"
