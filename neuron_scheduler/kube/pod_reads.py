"""
Read one pod from the API server as it is now, for a question that comes before the watch has shown the pod.

Does not keep it: the watch shows it soon.
"""

from typing import Final

import attrs

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.objects.base import Malformed
from neuron_scheduler.kube.objects.pods import PODS
from neuron_scheduler.model.pod import Pod

TIMEOUT: Final = 4.0


@attrs.frozen(kw_only=True)
class PodReads:
    """Reads pods."""

    client: Client

    async def read(self, namespace: str, name: str) -> Pod | Malformed | None:
        """
        Return a pod as it is now (a consistent read); None if it does not exist, or has ended.

        Raises:
            ApiError, UnreachableError: as the client.
        """
        try:
            answer = await self.client.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}", timeout=TIMEOUT)
        except ApiError as error:
            if error.gone("pods", name):
                return None
            raise
        decoded = PODS.decode(answer.body)
        if decoded.key != f"{namespace}/{name}":
            raise UnreachableError(f"the answer is about pod {decoded.key or 'without a name'}; is it a proxy's?")
        return decoded.value
