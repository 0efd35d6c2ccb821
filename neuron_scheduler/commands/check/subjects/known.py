"""
The names of objects: ours, ours of older versions, and those of AWS's manifests and chart.

Decision 13 says why ours changed. `deployments` of both roads keep AWS's names, and are told apart by what they run.
"""

from collections.abc import Iterable, Mapping
from typing import Final

OUR_LABEL: Final = ("app.kubernetes.io/name", "neuron-scheduler")
OUR_NAME: Final = "neuron-scheduler"
OLDER_NAME: Final = "my-scheduler"
"""Of our objects in older versions; AWS's objects of this name have no `OUR_LABEL`."""
EXTENDER: Final = "k8s-neuron-scheduler"
"""Deployment and Service on the road with the default scheduler, AWS's and ours."""
EXTENDER_LABEL: Final = ("component", EXTENDER)
"""Of the pods of AWS's extension."""
CONFIG_MAP: Final = "neuron-scheduler-config"

LEADER: Final = "neuron-scheduler-leader"
ALLOCATIONS: Final = "neuron-scheduler-allocations"
NODE_NAME: Final = "neuron-scheduler-node-name"
NAME: Final = "neuron-scheduler-name"
CAPACITY: Final = "neuron-scheduler-capacity"
"""The namespace in which machines are asked for; also its PriorityClass, its policy, and its pods' schedulerName."""
POLICIES: Final = (LEADER, ALLOCATIONS, NODE_NAME, NAME)
KEEPER: Final = "neuron-scheduler-lease-watch"

AWS_RELEASE: Final = "neuron-helm-chart"
AWS_CHART: Final = "oci://public.ecr.aws/neuron/neuron-helm-chart"
AWS_ACCOUNTS: Final = (OLDER_NAME, EXTENDER)
PLUGIN: Final = "neuron-device-plugin"
"""In the names of AWS's DaemonSet, of its image and of its ServiceAccount."""
PLUGIN_LABEL: Final = ("name", "neuron-device-plugin-ds")


def has(labels: Mapping[str, str], label: tuple[str, str]) -> bool:
    """Return whether one of the labels is this one."""
    return labels.get(label[0]) == label[1]


def username(account: str) -> str:
    """Return the user name of a ServiceAccount, from `namespace/name`."""
    return f"system:serviceaccount:{account.replace('/', ':')}"


def is_of_plugin(labels: Mapping[str, str], images: Iterable[str]) -> bool:
    """Return whether pods with these labels and images are the device plugin's."""
    return has(labels, PLUGIN_LABEL) or any(PLUGIN in image for image in images)


def is_or_was_ours(name: str) -> bool:
    """Return whether an object's name is one of ours, or was one in an older version."""
    return any(name == own or name.startswith(f"{own}-") for own in (OUR_NAME, OLDER_NAME))
