"""
Reads what asking the autoscaler for machines needs, if a profile asks: the namespace, the priority, rights there.

Does not read anything where no profile asks: what is not used needs no right of the person who checks.
"""

from typing import Final

from neuron_scheduler.check.account_rights import reviewed
from neuron_scheduler.check.attempt import attempt
from neuron_scheduler.check.kinds import PLACEHOLDERS
from neuron_scheduler.check.subjects.known import CAPACITY
from neuron_scheduler.check.subjects.snapshot import Asking, Snapshot, Unread
from neuron_scheduler.kube.access_review import asking
from neuron_scheduler.kube.http.client import Client

WITHIN: Final = 10.0  # seconds
_NAMESPACE: Final = f"/api/v1/namespaces/{CAPACITY}"
_PRIORITY_CLASS: Final = f"/apis/scheduling.k8s.io/v1/priorityclasses/{CAPACITY}"
_BUFFERS: Final = "/apis/autoscaling.x-k8s.io"


async def read_asking(client: Client, read: Snapshot) -> Asking | None:
    """Return what is there; None if no Deployment of ours asks for machines."""
    forms = tuple(sorted({form for deployment in read.ours for form in deployment.asks}))
    if not forms:
        return None

    async def is_there(request: str, path: str) -> bool | Unread:
        async def found() -> bool:
            await client.request("GET", path, timeout=WITHIN)
            return True

        return await attempt(request, found(), absent=False)

    return Asking(
        forms=forms,
        namespace=await is_there("get namespaces", _NAMESPACE),
        priority_class=await is_there("get priorityclasses.scheduling.k8s.io", _PRIORITY_CLASS),
        buffers=forms == (PLACEHOLDERS,) or await is_there("get /apis/autoscaling.x-k8s.io", _BUFFERS),
        rights=await reviewed(client, read, [right for form in forms for right in asking(form, CAPACITY)]),
    )
