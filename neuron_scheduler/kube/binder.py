"""
Commit a decision with one POST of a Binding, and find out for certain what became of it.

The API server merges the Binding's annotations into the pod in the transaction that sets `spec.nodeName`. An answer
that did not come (timeout, reset, 5xx) says nothing: a stopped API server has committed a Binding whose client had
given up. So the identical Binding is sent again until the answer is definite, and what is still open when we must stop
is counted, because a Lease may then only expire. Refuses to decide how many binds run at once: that is the caller's.
"""

import random as randomness
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Final, Protocol

import anyio
import attrs
import msgspec

from neuron_scheduler.errors import ApiError, FencedError, UnreachableError
from neuron_scheduler.kube import pod_wire as wire
from neuron_scheduler.kube.backoff import Backoff
from neuron_scheduler.kube.client import LONGEST_PAUSE, Response
from neuron_scheduler.kube.pod_codec import NEURON_ALLOCATED, annotations_size
from neuron_scheduler.kube.transport import BIND_TIMEOUT, Pool
from neuron_scheduler.model.pod import Pod

MOST_ANNOTATIONS: Final = 256 << 10  # bytes; the server stores more on this path, and the pod can then never start
NOT_READY: Final = "not yet ready to handle request"  # PodTopologyLabels, for moments after a server's start
NOT_THE_HOLDER: Final = "this scheduler does not hold the Lease"  # the policy in manifests/admission_bindings.yaml
READ_TIMEOUT: Final = 10.0

_KEY: Final = re.compile(
    r"(?:(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"(?=.{1,63}$)[a-z0-9](?:[-a-z0-9_.]*[a-z0-9])?",
    re.ASCII,
)
_READ_BACK: Final = msgspec.json.Decoder(wire.PlacedPod)


@attrs.frozen
class Bound:
    """The pod is on the node, with the annotations."""


@attrs.frozen
class Refused:
    """
    The server refused, and no earlier try can still succeed.

    Attributes:
        retryable: another attempt may be made later; otherwise the pod is someone else's, going, or not allowed.
    """

    status: int
    message: str
    retryable: bool


@attrs.frozen
class Gone:
    """The pod does not exist any more, at least not with this uid."""


@attrs.frozen
class Fenced:
    """Nothing was sent: this replica may not bind."""


@attrs.frozen
class Unresolved:
    """This replica may not bind any more, and an earlier try may have succeeded or may still do so."""


BindOutcome = Bound | Refused | Gone | Fenced | Unresolved


class Api(Protocol):
    """What the binder asks of the client."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = ...,
        timeout: float = ...,  # noqa: ASYNC109 - as in the client
        pool: Pool = ...,
        permit: Callable[[], bool] | None = ...,
    ) -> Response:
        """Send one request."""


@attrs.define(eq=False)
class _Bind:
    """One decision on its way; `unknown` while a try that was sent has no definite answer."""

    path: str
    body: bytes
    uid: str
    node_name: str
    annotations: Mapping[str, str]
    unknown: bool = False


async def _as_it_is(message: str) -> str:
    """Explain nothing."""
    return message


@attrs.define(eq=False, kw_only=True)
class Binder:
    """
    Binds pods.

    Attributes:
        may_send: whether this replica may write now; asked with the connection in hand, right before the first byte.
        explained: returns what the server's message means, where it says that we do not hold the Lease.
        timeout: seconds for one try; with the renew deadline it must stay below the lease duration.
        in_flight: binds that have not returned.
        abandoned: binds that returned, or were cancelled, with an unknown outcome.
        repeated: tries beyond the first.
    """

    client: Api
    may_send: Callable[[], bool]
    explained: Callable[[str], Awaitable[str]] = _as_it_is
    random: Callable[[], float] = randomness.random
    timeout: float = BIND_TIMEOUT
    first_pause: float = 0.2
    most_pause: float = 5.0
    in_flight: int = attrs.field(default=0, init=False)
    abandoned: int = attrs.field(default=0, init=False)
    repeated: int = attrs.field(default=0, init=False)
    _unknown: int = attrs.field(default=0, init=False)

    @property
    def resolved(self) -> bool:
        """Whether every bind has a definite outcome, so that the Lease may be released."""
        return not self.in_flight and not self.abandoned

    @property
    def unknown(self) -> int:
        """Binds in flight of which a try has gone unanswered."""
        return self._unknown

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome:
        """
        Bind the pod, however long it takes to know the outcome.

        Cancelling it is safe for the caller and leaves an unknown outcome if a try was under way (`abandoned`).
        """
        problem = unusable(annotations, already=pod.annotations_size)
        if problem:
            return Refused(422, problem, retryable=False)
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        bind = _Bind(path, encode_binding(pod, node_name, annotations), pod.uid, node_name, annotations)
        self.in_flight += 1
        try:
            return await self._until_definite(bind)
        finally:
            self.in_flight -= 1
            if bind.unknown:
                self.abandoned += 1

    async def _until_definite(self, bind: _Bind) -> BindOutcome:
        backoff = Backoff(self.random, first=self.first_pause, most=self.most_pause)
        waited = False
        try:
            while self.may_send():
                outcome = await self._try(bind)
                if not isinstance(outcome, float):
                    return outcome
                if bind.unknown and not waited:
                    self._unknown += 1
                    waited = True
                await anyio.sleep(backoff.next(at_least=outcome))
                self.repeated += 1
            return Unresolved() if bind.unknown else Fenced()
        finally:
            self._unknown -= waited

    async def _try(self, bind: _Bind) -> BindOutcome | float:
        """Send the Binding once; return the outcome, or the least seconds to wait before it is sent again."""
        earlier = bind.unknown

        def permit() -> bool:
            allowed = self.may_send()
            bind.unknown = earlier or allowed
            return allowed

        try:
            await self.client.request(
                "POST",
                f"{bind.path}/binding",
                body=bind.body,
                timeout=self.timeout,
                pool=Pool.BIND,
                permit=permit,
            )
        except FencedError:
            bind.unknown = earlier
            return Unresolved() if earlier else Fenced()
        except UnreachableError:
            return 0.0
        except ApiError as error:
            if error.status >= 500:
                return min(error.retry_after or 0.0, LONGEST_PAUSE)
            bind.unknown = earlier
            return await self._refused(bind, error)
        bind.unknown = False
        return Bound()

    async def _refused(self, bind: _Bind, error: ApiError) -> BindOutcome | float:
        """
        Judge a 4xx. It is definite for the try it answers; an earlier unanswered try is settled only by what makes its
        success impossible (the pod is gone, bound or going), not by a refusal of our rights or of the moment.
        """
        if error.status == 404:
            bind.unknown = False
            return Gone()
        if error.status == 409:
            return await self._read_back(bind, error)
        if error.status == 429 or bind.unknown:
            return min(error.retry_after or 0.0, LONGEST_PAUSE)
        momentary = error.status == 401 or (error.status == 403 and NOT_READY in error.message)
        message = await self.explained(error.message) if NOT_THE_HOLDER in error.message else error.message
        return Refused(error.status, message, retryable=momentary)

    async def _read_back(self, bind: _Bind, conflict: ApiError) -> BindOutcome | float:
        """Find out by a consistent GET whether the conflict is with our own success."""
        outcome: BindOutcome | None = None
        try:
            answer = await self.client.request("GET", bind.path, timeout=READ_TIMEOUT)
            outcome = _judge(_READ_BACK.decode(answer.body), bind, conflict)
        except ApiError as error:
            outcome = Gone() if error.status == 404 else None
        except (UnreachableError, msgspec.MsgspecError):
            pass  # the Binding is sent again, and answered with the same conflict
        if outcome is None:
            return 0.0
        bind.unknown = False
        return outcome


def _judge(found: wire.PlacedPod, bind: _Bind, conflict: ApiError) -> BindOutcome | None:
    """Return what the pod as it stands says about our Binding, None if it may still come or be repeated."""
    if found.metadata.uid != bind.uid:
        return Gone()
    if found.spec.node_name == bind.node_name and _carries(found.metadata.annotations or {}, bind.annotations):
        return Bound()
    if found.spec.node_name or found.metadata.deletion_timestamp or found.spec.scheduling_gates:
        return Refused(409, conflict.message, retryable=False)
    return None


def encode_binding(pod: Pod, node_name: str, annotations: Mapping[str, str]) -> bytes:
    """
    Return the Binding as the server wants it: always with the uid, so that a pod recreated under the same name is never
    bound by a late repeat, and with `target.kind`, without which topology labels are not copied.
    """
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "annotations": annotations}
    target = {"kind": "Node", "name": node_name}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})


@lru_cache(maxsize=64)
def _is_key(name: str) -> bool:
    return _KEY.fullmatch(name.lower()) is not None


def unusable(annotations: Mapping[str, str], *, already: int) -> str:
    """
    Return what is wrong with annotations to be added to `already` bytes of them; empty if nothing.

    The server does not validate a Binding's annotations; invalid ones make every later update of the pod fail.
    """
    for key in annotations:
        if not _is_key(key):
            return f"annotation key {key!r} is invalid: it must be [prefix/]name"
    size = already + annotations_size(annotations)
    if size > MOST_ANNOTATIONS:
        return f"the pod's annotations would take {size} bytes, and {MOST_ANNOTATIONS} are allowed; remove some"
    return ""


def _carries(found: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    """Tell whether the pod has the annotations as sent, but for the one that the device plugin turns to `true`."""
    return all(found.get(key) == value for key, value in sent.items() if key != NEURON_ALLOCATED)
