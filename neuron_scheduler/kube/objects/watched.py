"""
The kinds that are watched beside nodes and pods, in the order of their lists.

Informers and rights follow from this list. Without one kind decisions would be wrong without a sign: a budget, a
volume's limit or a pod's siblings would not count. So a replica is not ready until each has been listed.
"""

from typing import Any, Final

from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.selecting_kinds import BUDGETS, NAMESPACES, WORKLOADS
from neuron_scheduler.kube.objects.storage import STORAGE

OTHER_KINDS: Final[tuple[Resource[Any], ...]] = (BUDGETS, NAMESPACES, *WORKLOADS, *STORAGE)
