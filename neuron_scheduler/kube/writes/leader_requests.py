"""
Requests that only the leader may send, each checked for being answered by an API server.

Does not send anything twice: only the caller knows whether a repeat is harmless.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs
import msgspec

from neuron_scheduler.errors import UnreachableError
from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.http.request import JSON
from neuron_scheduler.kube.http.status import confirms

T = TypeVar("T")


@attrs.frozen(eq=False, kw_only=True)
class LeaderRequests:
    """
    Sends requests.

    Attributes:
        may_send: whether this replica may write now; called right before the first byte of a write.
        timeout: seconds for one request; with the renew deadline it must stay below the lease duration.
    """

    client: Client
    may_send: Callable[[], bool]
    timeout: float

    async def write(
        self, method: str, path: str, body: Mapping[str, Any], *, kind: str, content_type: str = JSON
    ) -> bytes:
        """
        Send a write about an object of a kind, and return the body of the answer.

        Raises:
            FencedError: nothing was sent, because this replica may not write.
            ApiError: the answer is a refusal.
            UnreachableError: there is no answer, or none of an API server.
        """
        answer = await self.client.request(
            method,
            path,
            body=msgspec.json.encode(body),
            content_type=content_type,
            timeout=self.timeout,
            pool=Pool.BIND,
            permit=self.may_send,
        )
        if not confirms(answer.body, kind):
            raise UnreachableError(f"{answer.status}, and not from an API server")
        return answer.body

    async def read(self, path: str, decoder: "msgspec.json.Decoder[T]", **params: str) -> T:
        """
        Return the object or list at a path.

        Raises:
            ApiError, UnreachableError: as `write`; what cannot be read is no answer.
        """
        answer = await self.client.request("GET", path, params=params, timeout=self.timeout)
        return decoded(answer.body, decoder)


def decoded(body: bytes, decoder: "msgspec.json.Decoder[T]") -> T:
    """Return the object in an answer; raise UnreachableError if it cannot be read."""
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreachableError(f"the answer cannot be read: {error}") from error


def deletion(uid: str) -> dict[str, Any]:
    """Return the options that delete at once, and only the object of this uid."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Background",
        "preconditions": {"uid": uid},
    }
