"""
Keeps the objects that ask an autoscaler for machines as they are wanted, however often the API server has to be asked.

What is wanted of an object may change while a request about it is under way: the answer is then followed by the next
request. A name stays here until its object is known to be gone. A few tasks write. Refuses to decide what is wanted:
that is for `capacity_requester`.
"""

import random as randomness
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import anyio
import attrs

from neuron_scheduler.capacity.requests import Request
from neuron_scheduler.delaying_queue import DelayingQueue
from neuron_scheduler.kube.http.backoff import Backoff
from neuron_scheduler.kube.writes.machine_order import Asked, Declined, MachineOrder, Orders, Unsettled, Withdrawn
from neuron_scheduler.model.resources import add
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

WRITERS: Final = 4
MOST_DELETED: Final = 256
"""So many uids of deleted objects are remembered, because the watch may show these objects later."""
_REPORTED_FROM: Final = 4  # tries before a log line; the next ones after 8, 16, ...

log = logs.logger(__name__)


class Listener(Protocol):
    """Is told what became of an order."""

    def declined(self, name: str, message: str) -> None:
        """The API server refuses to let the machine be asked for; the order is being withdrawn."""

    def withdrawn(self, name: str) -> None:
        """The objects are gone, or cannot be removed now; whoever waits for that may go on."""


@attrs.define(eq=False, kw_only=True)
class _Standing:
    """
    One name.

    Attributes:
        order: None if an earlier leader has created its objects.
        uid: of its object; empty until it is known.
        wanted: whether the objects are to exist.
        marked: whether the objects are complete.
        busy: a request about it is under way.
    """

    form: Orders
    backoff: Backoff
    order: MachineOrder | None = None
    uid: str = ""
    wanted: bool = True
    busy: bool = False
    tries: int = 0


@attrs.define(eq=False, kw_only=True)
class MachineOrders:
    """
    Writes orders while it runs.

    Attributes:
        clock: seconds that never jump.
        errors: reports unexpected exceptions.
    """

    clock: Callable[[], float]
    listener: Listener
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    random: Callable[[], float] = randomness.random
    _standing: dict[str, _Standing] = attrs.field(factory=dict, init=False)
    _deleted: deque[str] = attrs.field(factory=lambda: deque(maxlen=MOST_DELETED), init=False)  # uids
    _turns: DelayingQueue[str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._turns = DelayingQueue(clock=self.clock, share=WRITERS)

    @property
    def names(self) -> Mapping[str, object]:
        """The names of all objects that are there, or may be."""
        return self._standing

    def ask(self, order: MachineOrder, form: Orders) -> None:
        """Create the objects of an order; never waits."""
        self._standing[order.name] = self._new(form, order)
        self._turns.add(order.name, "", self.clock())

    def adopt(self, name: str, uid: str, form: Orders) -> None:
        """Take over objects of an earlier leader, which are there."""
        standing = self._standing[name] = self._new(form, None)
        standing.uid = uid

    def withdraw(self, name: str) -> None:
        """Remove the objects; never waits."""
        standing = self._standing.get(name)
        if standing is not None and standing.wanted:
            standing.wanted, standing.tries = False, 0
            standing.backoff.reset()
            self._turns.add(name, "", self.clock())

    def seen(self, name: str, uid: str) -> None:
        """Note the uid of the object that the watch shows under a name."""
        standing = self._standing.get(name)
        if standing is not None:
            standing.uid = uid

    def has_deleted(self, uid: str) -> bool:
        """Return whether the API server has lately answered that the object of this uid is gone."""
        return uid in self._deleted

    def vanished(self, name: str, uid: str) -> bool:
        """Forget objects that are gone, as the watch shows; return whether they were wanted."""
        standing = self._standing.get(name)
        if standing is None or standing.uid not in ("", uid) or uid in self._deleted:
            return False  # it was another one of the name
        wanted = standing.wanted
        self._gone(name)
        return wanted

    async def run(self) -> None:
        """Write until cancelled."""
        async with anyio.create_task_group() as writers:
            for _ in range(WRITERS):
                writers.start_soon(self._turns.serve, self._settle)

    def _new(self, form: Orders, order: MachineOrder | None) -> _Standing:
        return _Standing(form=form, order=order, backoff=Backoff(self.random, first=0.2, most=30.0))

    async def _settle(self, name: str) -> None:
        """Send one request about a name, and another one later if it is not as wanted yet."""
        standing = self._standing.get(name)
        if standing is None or standing.busy:
            return
        wanted, standing.busy = standing.wanted, True
        try:
            answer = await self._request(name, standing)
        except Exception as error:  # noqa: BLE001 - it is one request's error
            answer = Unsettled(self.errors.report(error, task="capacity request", pod=name))
        finally:
            standing.busy = False
        if self._standing.get(name) is not standing:
            return  # the watch has shown meanwhile that it is gone
        try:
            pause = self._answered(name, standing, wanted, answer)
        except Exception as error:  # noqa: BLE001 - the listener's error must not end the writers
            self.errors.report(error, task="capacity request", pod=name)
            pause = standing.backoff.next() if name in self._standing else None
        if pause is not None:
            self._turns.add(name, "", self.clock() + pause)

    async def _request(self, name: str, standing: _Standing) -> Asked | Withdrawn | Declined | Unsettled:
        if not standing.wanted:
            return await standing.form.withdraw(name, standing.uid)
        if standing.order is None:
            return Asked(standing.uid)
        return await standing.form.ask(standing.order)

    def _answered(
        self, name: str, standing: _Standing, wanted: bool, answer: Asked | Withdrawn | Declined | Unsettled
    ) -> float | None:
        """Apply an answer to the request that was sent for `wanted`; return after how many seconds to ask again."""
        match answer:
            case Asked(uid=uid):
                standing.uid = uid
                return None if standing.wanted else 0.0
            case Withdrawn():
                self._gone(name)
                return None
            case Declined(message=message) if wanted:
                if standing.wanted:
                    standing.wanted = False
                    self.listener.declined(name, message)
                return 0.0  # a part of it may have been created
            case Declined(message=message) | Unsettled(message=message):
                if isinstance(answer, Declined) and not standing.uid:
                    self._gone(name)  # nobody has seen an object of this name, and we may not even look
                    return None
                if isinstance(answer, Declined):
                    self.listener.withdrawn(name)
                return self._pause(name, standing, answer, message)

    def _pause(self, name: str, standing: _Standing, answer: Declined | Unsettled, message: str) -> float:
        standing.tries += 1
        refused = isinstance(answer, Declined) and standing.tries == 1
        if refused or (standing.tries >= _REPORTED_FROM and not standing.tries & (standing.tries - 1)):
            log.warning(
                "Request for a machine cannot be written, trying again",
                name=name,
                wanted=standing.wanted,
                tries=standing.tries,
                err=message,
            )
        return standing.backoff.next(at_least=answer.retry_after if isinstance(answer, Unsettled) else None)

    def _gone(self, name: str) -> None:
        standing = self._standing.pop(name)
        if standing.uid:
            self._deleted.append(standing.uid)
        self.listener.withdrawn(name)


def order_of(request: Request, image: str) -> MachineOrder:
    """Return the order of a request that was just made."""
    need = request.need
    return MachineOrder(
        name=request.name,
        scheduler_name=request.owner.scheduler_name,
        namespace=request.owner.namespace,
        instance_types=need.instance_types,
        zones=need.zones,
        requests=add(need.silicon, need.host),
        like=need.pattern,
        pods=tuple(pod.uid for pod in need.pods),
        image=image,
    )
