"""
The kinds that are watched beside nodes and pods, in the order in which they are listed.

A new kind is one entry here and one case in `cluster/fold`: its informer, and its right to be listed and watched,
follow from it. All are needed, and all are stable APIs of every supported Kubernetes: without one of them decisions
would be wrong without a sign, because a budget, a volume's limit or a pod's siblings would not count. So a replica is
not ready until each has been listed, and says which one is missing.
"""

from typing import Any, Final

from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES, WORKLOADS
from neuron_scheduler.kube.objects.storage import STORAGE

OTHER_KINDS: Final[tuple[Resource[Any], ...]] = (BUDGETS, NAMESPACES, *WORKLOADS, *STORAGE)
