r"""
The machines that an autoscaler is asked for, from the first wish to the end: a table, with the time as an argument.

    need --asked--> OPEN --a new node is there--> ARRIVING --its pods have left the queue--> served
      |               \--its pods have left, or none needs it--> withdrawn     \--too late--> given up
      \--refused by the API server, limited, or in the pause between two rounds: it is planned again

Pods for which a machine was refused or given up wait before the next one is asked for, longer each time.

A need is one whole machine that waiting pods need. It says what the machine must have and which pods it is for, in the
terms in which an autoscaler can be asked for it. It counts for the profile and for the namespace of its most urgent
pod, until its machine serves or is given up and what asks for it is deleted. A machine is asked for as a whole or not
at all.
"""

import enum
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Final

import attrs

from neuron_scheduler.cluster.rows.node_info import NodeInfo
from neuron_scheduler.model.node import INSTANCE_TYPE_LABEL, ZONE_LABEL, Node
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_CORE, NEURON_DEVICE, NEURON_DEVICE_ALIAS, Resources
from neuron_scheduler.model.selectors import Effect, Taint, tolerates_all
from neuron_scheduler.neuron.catalog import INSTANCE_TYPES


@attrs.frozen(kw_only=True)
class MachineNeed:
    """
    A machine to be asked for.

    Attributes:
        instance_types: values of the label `node.kubernetes.io/instance-type` that serve, all of one size; texts name
            the first.
        silicon: all devices, or cores, or both, of an empty machine of these types, by the resources' names: no node
            that is used in part has room for it by count.
        host: all else that the pods ask for together, such as memory, huge pages and network interfaces, and more cpu
            than any single pod that waits: Karpenter packs in descending order of cpu, so the request takes the new
            machine before the pods do.
        zones: values of the label `topology.kubernetes.io/zone` in which it serves; empty if the zone does not matter.
        pods: the pods that would be on it, the most urgent first.
        pattern: the pod whose node selector, required node affinity and tolerations the request carries: every machine
            that these allow, of these types and in these zones, takes each of the pods.
        shortage: why the pods wait: `24 Neuron devices free on 2 nodes, largest free block 1, pod needs 4`.
    """

    instance_types: tuple[str, ...]
    silicon: Resources
    host: Resources
    zones: tuple[str, ...] = ()
    pods: tuple[Pod, ...]
    pattern: Pod = attrs.Factory(lambda self: self.pods[0], takes_self=True)
    shortage: str = ""

    @property
    def owner(self) -> "Owner":
        """Whose limits it counts for."""
        return Owner(self.pods[0].scheduler_name, self.pods[0].namespace)

    @property
    def devices(self) -> int:
        """
        How many devices the machine has, for the limits.

        Where it is asked for by its cores and the type is not known, each core counts as a device.
        """
        for name in (NEURON_DEVICE, NEURON_DEVICE_ALIAS):
            if self.silicon.get(name):
                return self.silicon[name]
        row = INSTANCE_TYPES.get(self.instance_types[0].removeprefix("ml."))
        return self.silicon.get(NEURON_CORE, 0) if row is None else row.devices

    def is_met_by(self, node: Node) -> bool:
        """Return whether a node is what is asked for, by type, zone and labels; it may not be ready yet."""
        required = self.pattern.constraints
        return (
            node.labels.get(INSTANCE_TYPE_LABEL) in self.instance_types
            and (not self.zones or node.labels.get(ZONE_LABEL) in self.zones)
            and all(node.labels.get(key) == value for key, value in required.node_selector.items())
            and (
                required.required_terms is None
                or any(term.matches(node.labels, node.name) for term in required.required_terms)
            )
        )


@attrs.frozen
class Owner:
    """Whose limits a need counts for; `namespace` is empty for the whole profile."""

    scheduler_name: str
    namespace: str = ""


FIRST_REFUSAL: Final = 60.0
"""Seconds after the first refusal of the API server until the same pods' machine is asked for again."""
LONGEST: Final = 4 * 3600.0
"""The most seconds that pods wait after a refusal, or after a machine was given up."""
_MOST_DOUBLED: Final = 16
_PASSING: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/")
"""Beginnings of the keys of taints that a node loses before it takes pods."""


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
class MachineRequest:
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


@attrs.frozen
class Wait:
    """
    Why and until when no machine is asked for a pod.

    Attributes:
        group: the first pod of the need, for counting.
        refused: the API server has refused; else a machine was given up.
        reason: a sentence for people, without its full stop.
        level: how often in a row.
    """

    group: str
    refused: bool
    reason: str
    until: float
    level: int = 1


@attrs.define(eq=False)
class Requests:
    """The table. A pod's uid is forgotten with `left`."""

    _requests: dict[str, MachineRequest] = attrs.field(factory=dict, init=False)
    _waits: dict[str, Wait] = attrs.field(factory=dict, init=False)  # by uid; one that is over decides the next one
    _limited: int = attrs.field(default=0, init=False)
    _postponed: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._requests)

    def get(self, name: str) -> MachineRequest | None:
        """Return a request that has not ended."""
        return self._requests.get(name)

    def all(self) -> tuple[MachineRequest, ...]:
        """Return all requests that have not ended, the oldest first."""
        return tuple(self._requests.values())

    @property
    def to_plan_with(self) -> dict[str, MachineNeed]:
        """What a plan counts as machines that are still to come, the oldest first."""
        return {request.name: request.need for request in self._requests.values() if not request.usable}

    @property
    def outstanding(self) -> list[tuple[Owner, MachineNeed]]:
        """What counts for the limits."""
        return [(request.owner, request.need) for request in self._requests.values()]

    def may_ask(self, uid: str, now: float) -> bool:
        """Return whether a machine may be asked for a pod that has waited long enough."""
        if self.wait_of(uid, now) is not None:
            return False
        return not any(request.usable and uid in request.pods for request in self._requests.values())

    def ask(self, need: MachineNeed, now: float, taken: Iterable[str] = ()) -> MachineRequest:
        """Add a request under a name that is the same for equal needs; `taken` are names of objects that exist."""
        used, number = {*self._requests, *taken}, 0
        while (name := f"capacity-{need.pods[0].uid}-{number}") in used:
            number += 1
        pods = frozenset(pod.uid for pod in need.pods)
        request = MachineRequest(name=name, owner=need.owner, need=need, since=now, pods=pods)
        self._requests[name] = request
        return request

    def adopt(self, name: str, owner: Owner, need: MachineNeed, now: float) -> MachineRequest:
        """Add a request that an earlier leader has made; the next plan says which pods it serves."""
        request = MachineRequest(name=name, owner=owner, need=need, since=now, pods=frozenset())
        self._requests[name] = request
        return request

    def planned(self, serving: Mapping[str, Iterable[str]]) -> list[MachineRequest]:
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

    def wait_of(self, uid: str, now: float) -> Wait | None:
        """Return why no machine is asked for a pod now; None if nothing is in the way."""
        wait = self._waits.get(uid)
        return wait if wait is not None and now < wait.until else None

    def wait(
        self, uids: Collection[str], reason: str, now: float, *, first: float = FIRST_REFUSAL, refused: bool = False
    ) -> None:
        """Let the pods of a request wait that was refused or given up: `first` seconds, then twice as long each."""
        group = min(uids, default="")
        for uid in uids:
            before = self._waits.get(uid)
            level = before.level + 1 if before is not None and before.refused == refused else 1
            pause = min(first * float(2 ** min(level - 1, _MOST_DOUBLED)), LONGEST)
            self._waits[uid] = Wait(group, refused, reason, now + pause, level)

    def not_asked(self, limited: int, postponed: int) -> None:
        """Note how many needs of the last plan are not asked for: because of a limit, or until the pause is over."""
        self._limited, self._postponed = limited, postponed

    def joined(self, node: Node, at: float) -> MachineRequest | None:
        """
        Give a node that joined at a time to the oldest open request before that which it serves; return that one.

        A node with a taint that the pods do not tolerate may be of another group, or may lose the taint later.
        """
        for request in self._requests.values():
            if request.state is State.OPEN and request.since <= at and request.need.is_met_by(node):
                lasting = [taint for taint in node.taints if _closes(taint) and not _passes(taint)]
                if tolerates_all(request.need.pattern.tolerations, lasting):
                    request.node_name = node.name
                    return request
        return None

    def of_node(self, name: str) -> MachineRequest | None:
        """Return the request for which a node has joined."""
        return next((request for request in self._requests.values() if request.node_name == name), None)

    def left(self, uid: str) -> list[MachineRequest]:
        """Forget a pod that waits no more, and return the requests that have lost their last pod with it."""
        self._waits.pop(uid, None)
        its_own = [request for request in self._requests.values() if uid in request.pods]
        for request in its_own:
            request.pods -= {uid}
        return [request for request in its_own if not request.pods]

    def end(self, name: str) -> MachineRequest | None:
        """Remove a request; None if it has ended before."""
        return self._requests.pop(name, None)

    def overdue(self, now: float, give_up: Mapping[str, float]) -> list[MachineRequest]:
        """Return the requests that are older than their profile allows; `give_up` has the seconds by profile."""
        return [
            request
            for request in self._requests.values()
            if now - request.since >= give_up.get(request.owner.scheduler_name, 0.0)
        ]

    def request_for(self, uid: str) -> MachineRequest | None:
        """Return the request whose machine serves a pod."""
        return next((request for request in self._requests.values() if uid in request.pods), None)

    def counts(self, now: float) -> dict[str, int]:
        """Return how many machines are in which state."""
        counts = Counter(request.state for request in self._requests.values())
        refused = {wait.group for wait in self._waits.values() if wait.refused and now < wait.until}
        return {
            State.WAITING.value: self._postponed,
            State.OPEN.value: counts[State.OPEN],
            State.ARRIVING.value: counts[State.ARRIVING],
            State.LIMITED.value: self._limited,
            State.REFUSED.value: len(refused),
        }


def takes_pods(node: Node, need: MachineNeed) -> bool:
    """Return whether the node of a machine shows its silicon, and is ready for pods."""
    shown = all(node.allocatable.get(name, 0) for name in need.silicon)
    passing = any(_closes(taint) and _passes(taint) for taint in node.taints)
    return shown and not (passing or node.unschedulable or node.refusal)


def is_used(node_info: NodeInfo, but: Container[str]) -> bool:
    """Return whether pods with Neuron are on a machine, `but` being uids of pods that do not count."""
    return any(pod_info.cores != 0 and uid not in but for uid, pod_info in node_info.pod_infos.items())


def _closes(taint: Taint) -> bool:
    return taint.effect is not Effect.PREFER_NO_SCHEDULE


def _passes(taint: Taint) -> bool:
    return taint.key.startswith(_PASSING)
