"""
Asks the API server which rights our ServiceAccount has, by SubjectAccessReviews. A review creates no object.
"""

from collections.abc import Sequence
from typing import Any, Final

import anyio

from neuron_scheduler.check.attempt import attempt
from neuron_scheduler.check.subjects.snapshot import Access, Snapshot, Unread
from neuron_scheduler.kube.access_review import REVIEWING, Right, leading, scheduling
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.disruption_budgets import BUDGETS
from neuron_scheduler.kube.objects.namespaces import NAMESPACES
from neuron_scheduler.kube.objects.nodes import NODES
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.kube.objects.storage import STORAGE
from neuron_scheduler.kube.objects.workloads import WORKLOADS
from neuron_scheduler.kube.user_review import UserReviews

AT_ONCE: Final = 8  # reviews
REQUEST: Final = "create subjectaccessreviews.authorization.k8s.io"
WATCHED: Final[tuple[Resource[Any], ...]] = (NODES, BUDGETS, NAMESPACES, *WORKLOADS, *STORAGE, PODS)
"""What the scheduler watches, and so needs rights for."""


async def review_rights(client: Client, read: Snapshot) -> tuple[Access, ...] | Unread | None:
    """Return what our ServiceAccount may do; nothing if it does not exist, None if the server reviews no rights."""
    rights = (*scheduling(WATCHED), *leading(read.namespace, read.lease_name))
    flags = ("--authorize-metrics", "--answer-questions")
    if any(deployment.has_flag(flag) for deployment in read.ours for flag in flags):
        rights += REVIEWING
    return await reviewed(client, read, rights)


async def reviewed(client: Client, read: Snapshot, rights: Sequence[Right]) -> tuple[Access, ...] | Unread | None:
    """Return which of these rights our ServiceAccount has; nothing, or None, as in `review_rights`."""
    if not isinstance(read.accounts, Unread) and read.account not in {found.name for found in read.accounts}:
        return ()
    reviews, limiter = UserReviews(client), anyio.CapacityLimiter(AT_ONCE)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{read.namespace}", "system:authenticated")
    answers: dict[Right, bool | Unread | None] = {}

    async def review(right: Right) -> None:
        async with limiter:
            answers[right] = await attempt(REQUEST, reviews.may(read.username, groups, right.attributes), None)

    await review(rights[0])
    if isinstance(answers[rights[0]], bool):  # if the first is refused, so are all
        async with anyio.create_task_group() as tasks:
            for right in rights[1:]:
                tasks.start_soon(review, right)
    failed = [answer for answer in answers.values() if not isinstance(answer, bool)]
    return failed[0] if failed else tuple(Access(str(right), answers[right] is True) for right in rights)
