r"""
The machines that an autoscaler is asked for, from the first wish to the end: a table, with the time as an argument.

    need --asked--> OPEN --a new node is there--> ARRIVING --its pods have left the queue--> served
      |               \--its pods have left, or none needs it--> withdrawn     \--too late--> given up
      \--refused by the API server, limited, or in the pause between two rounds: it is planned again

Pods for which a machine was refused or given up wait before the next one is asked for (`waits`). Refuses to plan
(`plan`), to write objects, and to know what they look like.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from neuron_scheduler.capacity.limits import Limited, Owner, owner_of
from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.capacity.machine_node import is_closed, serves
from neuron_scheduler.capacity.waits import Waits
from neuron_scheduler.model.node import Node


class State(enum.StrEnum):
    """What becomes of a machine that pods need; the values are labels of `neuron_scheduler_capacity_requests`."""

    WAITING = "waiting"
    """It is asked for after the pause between two rounds."""
    OPEN = "open"
    """It is asked for."""
    ARRIVING = "arriving"
    """Its node has joined, and its pods are not bound yet."""
    LIMITED = "limited"
    """A limit keeps it from being asked for."""
    REFUSED = "refused"
    """The API server has refused what asks for it."""


class Outcome(enum.StrEnum):
    """How a request ended; the values are labels of `neuron_scheduler_capacity_requests_ended_total`."""

    SERVED = "served"
    """Its node has joined, and none of its pods waits any more."""
    WITHDRAWN = "withdrawn"
    """No pod needs its machine any more."""
    GIVEN_UP = "given_up"
    """Its pods still waited at the end of the time."""


@attrs.define(eq=False, kw_only=True)
class Request:
    """
    One machine that is asked for.

    Attributes:
        name: its id, from which the names of its objects are made.
        owner: whose limits it counts for.
        since: when it was asked for, or adopted.
        pods: uids of the pods that its machine serves, as last planned.
        node_name: the node that has joined for it.
        usable_since: since when the node takes pods; None before.
    """

    name: str
    owner: Owner
    need: MachineNeed
    since: float
    pods: frozenset[str]
    node_name: str = ""
    usable_since: float | None = None

    @property
    def state(self) -> State:
        """OPEN or ARRIVING."""
        return State.ARRIVING if self.node_name else State.OPEN

    @property
    def usable(self) -> bool:
        """Whether its node takes pods."""
        return self.usable_since is not None

    @property
    def machine(self) -> str:
        """The instance type for people."""
        return self.need.instance_types[0]


@attrs.define(eq=False)
class Requests:
    """
    The table. A pod's uid is forgotten with `left`.

    Attributes:
        waits: of the pods for which a machine was refused or given up.
    """

    waits: Waits = attrs.field(factory=Waits, init=False)
    _requests: dict[str, Request] = attrs.field(factory=dict, init=False)
    _limited: tuple[Limited, ...] = attrs.field(default=(), init=False)
    _postponed: tuple[MachineNeed, ...] = attrs.field(default=(), init=False)

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, name: str) -> bool:
        return name in self._requests

    def get(self, name: str) -> Request | None:
        """Return a request that has not ended."""
        return self._requests.get(name)

    def all(self) -> tuple[Request, ...]:
        """Return all requests that have not ended, the oldest first."""
        return tuple(self._requests.values())

    @property
    def to_plan_with(self) -> dict[str, MachineNeed]:
        """What a plan counts as machines that are still to come, the oldest first."""
        return {request.name: request.need for request in self._requests.values() if not request.usable}

    @property
    def awaited(self) -> frozenset[str]:
        """The requests whose machine has not come."""
        return frozenset(request.name for request in self._requests.values() if request.state is State.OPEN)

    @property
    def outstanding(self) -> list[tuple[Owner, MachineNeed]]:
        """What counts for the limits."""
        return [(request.owner, request.need) for request in self._requests.values()]

    def may_ask(self, uid: str, now: float) -> bool:
        """Return whether a machine may be asked for a pod that has waited long enough."""
        if self.waits.of(uid, now) is not None:
            return False
        return not any(request.usable and uid in request.pods for request in self._requests.values())

    def ask(self, need: MachineNeed, now: float, taken: Iterable[str] = ()) -> Request:
        """Add a request under a name that is the same for equal needs; `taken` are names of objects that exist."""
        used, number = {*self._requests, *taken}, 0
        while (name := f"capacity-{need.pods[0].uid}-{number}") in used:
            number += 1
        pods = frozenset(pod.uid for pod in need.pods)
        request = Request(name=name, owner=owner_of(need), need=need, since=now, pods=pods)
        self._requests[name] = request
        return request

    def adopt(self, name: str, owner: Owner, need: MachineNeed, now: float) -> Request:
        """Add a request that an earlier leader has made; the next plan says which pods it serves."""
        request = Request(name=name, owner=owner, need=need, since=now, pods=frozenset())
        self._requests[name] = request
        return request

    def planned(self, serving: Mapping[str, Iterable[str]]) -> list[Request]:
        """
        Note which pods each machine serves that is still to come; no other machine serves them any more.

        Returns the requests that have lost their last pod with that: others have taken their machines.
        """
        moved = {name: frozenset(uids) for name, uids in serving.items() if name in self._requests}
        away = frozenset[str]().union(*moved.values())
        left = [request for name, request in self._requests.items() if name not in moved and request.pods & away]
        for request in left:
            request.pods -= away
        for name, uids in moved.items():
            self._requests[name].pods = uids
        return [request for request in left if not request.pods]

    def not_asked(self, limited: tuple[Limited, ...], postponed: tuple[MachineNeed, ...]) -> None:
        """Note which needs of the last plan are not asked for: because of a limit, or until the pause is over."""
        self._limited, self._postponed = limited, postponed

    def joined(self, node: Node, at: float, others: Iterable[Node] = ()) -> Request | None:
        """
        Give a node that joined at a time to the oldest open request before that which it serves; return that one.

        `others` are nodes that were there before, which show what taints a group has.
        """
        for request in self._requests.values():
            its_own = request.state is State.OPEN and request.since <= at and serves(node, request.need)
            if its_own and not is_closed(node, request.need, others):
                request.node_name = node.name
                return request
        return None

    def of_node(self, name: str) -> Request | None:
        """Return the request for which a node has joined."""
        return next((request for request in self._requests.values() if request.node_name == name), None)

    def left(self, uid: str) -> list[Request]:
        """Forget a pod that waits no more, and return the requests that have lost their last pod with it."""
        self.waits.forget(uid)
        its_own = [request for request in self._requests.values() if uid in request.pods]
        for request in its_own:
            request.pods -= {uid}
        return [request for request in its_own if not request.pods]

    def end(self, name: str) -> Request | None:
        """Remove a request; None if it has ended before."""
        return self._requests.pop(name, None)

    def overdue(self, now: float, give_up: Mapping[str, float]) -> list[Request]:
        """Return the requests that are older than their profile allows; `give_up` has the seconds by profile."""
        return [
            request
            for request in self._requests.values()
            if now - request.since >= give_up.get(request.owner.scheduler_name, 0.0)
        ]

    def request_for(self, uid: str) -> Request | None:
        """Return the request whose machine serves a pod."""
        return next((request for request in self._requests.values() if uid in request.pods), None)

    def limit_of(self, uid: str) -> str:
        """Return which limit keeps a pod's machine from being asked for; empty if none does."""
        return next((limited.reason for limited in self._limited if _has(limited.need, uid)), "")

    def is_postponed(self, uid: str) -> bool:
        """Return whether a pod's machine is asked for after the pause."""
        return any(_has(need, uid) for need in self._postponed)

    def counts(self, now: float) -> dict[str, int]:
        """Return how many machines are in which state."""
        counts = Counter(request.state for request in self._requests.values())
        return {
            State.WAITING.value: len(self._postponed),
            State.OPEN.value: counts[State.OPEN],
            State.ARRIVING.value: counts[State.ARRIVING],
            State.LIMITED.value: len(self._limited),
            State.REFUSED.value: self.waits.refused_machines(now),
        }


def _has(need: MachineNeed, uid: str) -> bool:
    return any(pod.uid == uid for pod in need.pods)
