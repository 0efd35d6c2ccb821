"""
Commit a decision with one POST of a Binding, and find out for certain what became of it.

The API server merges the Binding's annotations into the pod in the transaction that sets `spec.nodeName`. Without its
answer (timeout, reset, 5xx, a proxy's page) the outcome is unknown: a stopped API server has committed a Binding after
its client had given up. So the identical Binding is sent again until the answer is definite, or its node is lost.
"""

import math
import random as randomness
from collections.abc import Callable, Mapping
from typing import Final

import anyio
import attrs
import msgspec

from neuron_scheduler.kube.http.client import Client
from neuron_scheduler.kube.http.pacing import Backoff
from neuron_scheduler.kube.http.pools import Pool
from neuron_scheduler.kube.objects import wire
from neuron_scheduler.kube.objects.json_scanner import decode_in_steps
from neuron_scheduler.kube.objects.pods import annotations_size
from neuron_scheduler.model.annotations import NEURON_ALLOCATED
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, FencedError, UnreachableError
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

MOST_ANNOTATIONS: Final = 256 << 10
"""Bytes. With a Binding the server stores more than it accepts otherwise, and then the pod can never start."""

NOT_THE_HOLDER: Final = "this scheduler does not hold the Lease"  # the policy in manifests/base/admission_bindings.yaml
READ_TIMEOUT: Final = 4.0
LAG: Final = 5.0  # seconds; an API server whose watch of Leases is further behind has most probably lost it
QUIET: Final = 60.0  # seconds without such a refusal after which the next one is logged again
STALE: Final = (
    "the API server refuses every Binding because it sees an old state of Lease {}, which this scheduler holds: its"
    " watch of Leases has ended (kubernetes/kubernetes#130887). Restart kube-apiserver; if you cannot, delete the"
    " ValidatingAdmissionPolicyBinding neuron-scheduler-leader and run one replica until the control plane has been"
    " renewed. To prevent it, apply manifests/lease-watch (docs/runbook.md, stale fence)"
)
TOO_LARGE: Final = (
    "the pod is too large: etcd cannot store it with the annotations of its Binding; remove annotations or labels from "
    "it, or create it again with less in its spec"
)
_STORED: Final = msgspec.json.Decoder(wire.ReadBackPod)
_LOST: Final = ApiError(409, message="the chosen node is gone, or another machine")

log = logs.logger(__name__)


def encode_binding(pod: Pod, node_name: str, annotations: Mapping[str, str]) -> bytes:
    """
    Return the Binding's body, with the uid, so that a late repeat never binds another pod of the same name.

    Without `target.kind` the server copies no topology labels.
    """
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "annotations": annotations}
    target = {"kind": "Node", "name": node_name}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})


def too_many(annotations: Mapping[str, str], *, already: int) -> "Refused | None":
    """Refuse annotations that are added to `already` bytes of them if that is too much."""
    size = already + annotations_size(annotations)
    problem = f"the pod's annotations would take {size} bytes, and {MOST_ANNOTATIONS} are allowed; remove some"
    return Refused(422, problem, until_changed=True) if size > MOST_ANNOTATIONS else None


@attrs.frozen
class Bound:
    """The pod is on the node, with the annotations."""


@attrs.frozen
class Refused:
    """
    The server refused, and no earlier try can succeed any more.

    Attributes:
        until_changed: only a change of the pod can help.
    """

    status: int
    message: str
    until_changed: bool = False


@attrs.frozen
class Gone:
    """The pod does not exist any more, at least not with this uid."""


@attrs.frozen
class Fenced:
    """No request can still succeed: this replica may not bind, or the decision is out of date."""


BindOutcome = Bound | Refused | Gone | Fenced


@attrs.define(eq=False, kw_only=True)
class Binding:
    """
    One decision on its way.

    Attributes:
        unknown: whether a try was sent that may have succeeded, or may still succeed.
        problem: why the last try has no definite answer.
    """

    pod: Pod
    path: str
    body: bytes
    node_name: str
    annotations: Mapping[str, str]
    backoff: Backoff
    unknown: bool = False
    tries: int = 0
    problem: str = ""


@attrs.frozen
class InDoubt:
    """There is no definite outcome yet; `Binder.try_again` finds out more, after a pause in seconds."""

    binding: Binding
    pause: float


@attrs.define(eq=False, kw_only=True)
class Binder:
    """
    Binds pods.

    Attributes:
        may_bind: whether this replica may write now; called when the connection is open, right before the first byte.
        timeout: seconds for one try; with the renew deadline it must stay below the lease duration.
        lease: `namespace/name` of the Lease that we hold while we may write; empty without leader election.
        on_stale: called for each Binding that is refused because the API server sees an old state of the Lease.
    """

    client: Client
    may_bind: Callable[[], bool]
    timeout: float
    lease: str = ""
    on_stale: Callable[[], None] | None = None
    clock: Callable[[], float] = anyio.current_time
    errors: UnexpectedErrors
    random: Callable[[], float] = randomness.random
    first_pause: float = 0.2
    most_pause: float = 5.0
    _open: set[Binding] = attrs.field(factory=set, init=False)
    _first_refused: float = attrs.field(default=math.inf, init=False)
    _stale_at: float = attrs.field(default=-math.inf, init=False)

    @property
    def in_flight(self) -> int:
        """Bindings without a definite outcome, whether or not a request is under way."""
        return len(self._open)

    @property
    def in_doubt(self) -> int:
        """Bindings in doubt: they may have succeeded, or may still succeed."""
        return sum(binding.unknown for binding in self._open)

    @property
    def is_resolved(self) -> bool:
        """Whether no Binding can succeed any more unless it is sent again, so that the Lease may be released."""
        return not self.in_doubt

    async def bind(self, pod: Pod, node_name: str, annotations: Mapping[str, str]) -> BindOutcome | InDoubt:
        """
        Try once to bind the pod; no exception comes after something may have been sent.

        The caller may cancel it; the outcome of a try that was under way is then unknown.
        """
        refused = too_many(annotations, already=pod.annotations_size)
        if refused is not None:
            return refused
        binding = Binding(
            pod=pod,
            path=f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}",
            body=encode_binding(pod, node_name, annotations),
            node_name=node_name,
            annotations=annotations,
            backoff=Backoff(self.random, first=self.first_pause, most=self.most_pause),
        )
        self._open.add(binding)
        return await self.try_again(binding)

    async def try_again(self, binding: Binding, lost: BindOutcome | None = None) -> BindOutcome | InDoubt:
        """
        Send the identical Binding once more; for exceptions and cancellation see `bind`.

        If its node is lost, nothing is sent, but the pod is read: `lost` is the outcome if it has no node.
        """
        binding.tries += 1
        try:
            outcome = await (self._try(binding) if lost is None else self._read_back(binding, _LOST, lost))
        except Exception as error:  # noqa: BLE001 - something may have been sent
            outcome = self._handle_unexpected(binding, error)
        if not isinstance(outcome, InDoubt):
            binding.unknown = False
            self._open.discard(binding)
        return outcome

    async def _try(self, binding: Binding) -> BindOutcome | InDoubt:
        earlier = binding.unknown

        def permit() -> bool:
            allowed = self.may_bind()
            binding.unknown = earlier or allowed
            return allowed

        try:
            if not self.may_bind():
                raise FencedError("this replica may not bind")  # noqa: TRY301 - as in the request itself
            await self.client.request(
                "POST",
                f"{binding.path}/binding",
                body=binding.body,
                timeout=self.timeout,
                pool=Pool.BIND,
                permit=permit,
            )
        except FencedError as error:
            binding.unknown = earlier
            return self._in_doubt(binding, error) if earlier else Fenced()
        except UnreachableError as error:
            return self._in_doubt(binding, error)
        except ApiError as error:
            binding.unknown = earlier or not (error.is_refusal or error.is_too_large or error.is_throttled)
            return await self._outcome_of_error(binding, error)
        return Bound()

    def _handle_unexpected(self, binding: Binding, error: Exception) -> Refused | InDoubt:
        problem = self.errors.report(error, task="binding", pod=binding.pod.key)
        return self._in_doubt(binding, error) if binding.unknown else Refused(0, problem)

    async def _outcome_of_error(self, binding: Binding, error: ApiError) -> BindOutcome | InDoubt:
        """
        Return what an error means.

        A refusal is definite for the try that it answers. An earlier try without an answer is settled only by a state
        in which it cannot succeed: the pod is gone, bound or terminating.
        """
        if error.is_gone("pods", binding.pod.name, binding.pod.uid):
            return Gone()
        if error.is_too_large and not binding.unknown:
            return Refused(413, TOO_LARGE, until_changed=True)
        if error.is_refusal and error.status in (404, 409) and not error.is_too_large:
            return await self._read_back(binding, error)
        if binding.unknown or not error.is_refusal:
            return self._in_doubt(binding, error)
        return Refused(error.status, self._message(error))

    def _message(self, error: ApiError) -> str:
        """Return the message for the pod's owner: the server's, or what it means that the policy refuses a leader."""
        if NOT_THE_HOLDER not in error.message or not self.lease or not self.may_bind():
            return error.message
        now = self.clock()
        self._first_refused = min(self._first_refused, now)
        if now - self._first_refused < LAG:  # the server may be a moment behind
            return error.message
        sentence = STALE.format(self.lease)
        if now - self._stale_at > QUIET:
            log.error("Bindings are refused by mistake", lease=self.lease, err=sentence)
        self._stale_at = now
        if self.on_stale is not None:
            self.on_stale()
        return sentence

    async def _read_back(
        self, binding: Binding, conflict: ApiError, lost: BindOutcome | None = None
    ) -> BindOutcome | InDoubt:
        """
        Find out with a consistent GET whether the conflict is with our own Binding; else the Binding is sent again.

        It may still succeed: the API server also returns 409 if etcd does not answer in time.
        """
        binding.unknown = True  # a stop may come before the answer
        outcome: BindOutcome | None = None
        try:
            answer = await self.client.request("GET", binding.path, timeout=READ_TIMEOUT)
            outcome = _outcome_in(await decode_in_steps(answer.body, _STORED), binding, conflict) or lost
        except ApiError as error:
            outcome = Gone() if error.is_gone("pods", binding.pod.name, binding.pod.uid) else None
        except (UnreachableError, ValueError, RecursionError):
            pass
        return outcome or self._in_doubt(binding, conflict)

    def _in_doubt(self, binding: Binding, error: Exception) -> InDoubt:
        binding.problem = str(error)
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        return InDoubt(binding, binding.backoff.next(at_least=retry_after))


def _outcome_in(pod: wire.ReadBackPod, binding: Binding, conflict: ApiError) -> BindOutcome | None:
    """Return the outcome of a Binding that its pod shows; None if the Binding may still succeed or be repeated."""
    if (pod.kind, pod.metadata.name) != ("Pod", binding.pod.name) or not pod.metadata.uid:
        raise ValueError("not an API server's answer")
    if pod.metadata.uid != binding.pod.uid:
        return Gone()
    if pod.spec.node_name == binding.node_name and _has_all(pod.metadata.annotations or {}, binding.annotations):
        return Bound()
    if pod.spec.node_name or pod.metadata.deletion_timestamp or pod.spec.scheduling_gates:
        return Refused(409, conflict.message)
    return None


def _has_all(stored: Mapping[str, str], sent: Mapping[str, str]) -> bool:
    """Return whether the pod has the annotations as sent, except the one that the device plugin sets to `true`."""
    return all(stored.get(key) == value for key, value in sent.items() if key != NEURON_ALLOCATED)
