"""
The allocate fence: on one node, Bindings of pods that the device plugin could confuse are sent one at a time.

The kubelet tells the device plugin how many devices or cores a container gets, but not to which pod it belongs. Of the
pods on its node that ask for this amount and have not been served, the plugin takes the one with the lowest
NEURON_ALLOC_TIME. Two such pods may swap their ids, and our account of who holds what is then wrong (decision 11).

So a decided pod is assumed at once, but its Binding waits until the kubelet has admitted every earlier pod that the
plugin could take for it. Which pods those are follows from the cluster and from the Bindings on their way: nothing is
stored, and a new leader needs nothing from the old one. Does not send Bindings, and does not change the cluster.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.commitment import Commitment
from neuron_scheduler.kube.writes.binder import BindOutcome, Bound, Fenced
from neuron_scheduler.model.neuron_request import Unit
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.neuron.annotations import alloc_time_of, looked_up, names_ids
from neuron_scheduler.telemetry import logs

LONGEST: Final = 120.0  # seconds from a pod's Binding; one that has not started by then is not waited for

log = logs.logger(__name__)

_Amounts = frozenset[tuple[Unit, int]]


@attrs.define(eq=False)
class _Wait:
    """A Binding that waits: the amounts for which the plugin could look for its pod, and whether the log told it."""

    commitment: Commitment
    amounts: _Amounts
    told: bool = False


@attrs.define(eq=False)
class _Turns:
    """
    The Bindings of one node.

    Attributes:
        line: those that wait, in the order of the decisions.
        first_tries: pods whose Binding was let through and is yet to be answered for the first time, by uid.
        bound_at: when pods that have not started were bound, by uid; -inf if they are waited for no more.
        stamped: the NEURON_ALLOC_TIME that was given out last.
        due: when the line is to be looked at again.
    """

    line: list[_Wait] = attrs.field(factory=list)
    first_tries: dict[str, Pod] = attrs.field(factory=dict)
    bound_at: dict[str, float] = attrs.field(factory=dict)
    stamped: int = 0
    due: float = math.inf


@attrs.define(eq=False, kw_only=True)
class AllocateFence:
    """
    Tells when each Binding may be sent, and gives out NEURON_ALLOC_TIME.

    Attributes:
        enabled: False lets every Binding through; times are given out all the same.
        clock: seconds that never jump.
        wall_clock: Unix time in nanoseconds.
        send: called with a commitment that has waited, when its Binding may be sent.
        changed: returns the outcome of a commitment that can no longer be bound as decided; None for all others.
        settle: called with a commitment that leaves the line without being sent, and its outcome.
        crashed: called with a commitment that has left the line because of an exception.
    """

    cluster: Cluster
    clock: Callable[[], float]
    wall_clock: Callable[[], int]
    send: Callable[[Commitment], None]
    changed: Callable[[Commitment], BindOutcome | None]
    settle: Callable[[Commitment, BindOutcome], None]
    crashed: Callable[[Commitment, Exception], None]
    enabled: bool = True
    _turns: dict[str, _Turns] = attrs.field(factory=dict, init=False)  # by the name of the node
    _waiting: dict[str, _Wait] = attrs.field(factory=dict, init=False)  # by uid
    _reminders: list[tuple[float, str]] = attrs.field(factory=list, init=False)
    _nearer: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    @property
    def waiting(self) -> int:
        """How many Bindings wait."""
        return len(self._waiting)

    def take(self, commitment: Commitment) -> bool:
        """Return True if the Binding may be sent now; otherwise it waits, and `send` is called when it may."""
        amounts = self._amounts(commitment)
        if not amounts:
            return True
        turns, wait = self._turns_of(commitment.node_name), _Wait(commitment, amounts)
        behind = self._behind(wait, turns, turns.line)
        if behind is None:
            self._let_through(wait, turns)
            return True
        self._wait_for(wait, turns, *behind)
        turns.line.append(wait)
        self._waiting[commitment.pod.uid] = wait
        return False

    def give_up(self, uid: str) -> bool:
        """Let a pod that waits leave its place to another; False if it does not wait, and may be bound."""
        wait = self._waiting.get(uid)
        if wait is not None:
            self._abandon(wait, Fenced())
        return wait is not None

    def stamp(self, commitment: Commitment) -> int:
        """Return the NEURON_ALLOC_TIME of a Binding that is sent now: unique, and increasing on its node."""
        node_info = self.cluster.node(commitment.node_name)
        if node_info is None:
            return self.wall_clock()  # it is gone, and with it all that was remembered of it
        turns = self._turns_of(commitment.node_name)
        turns.stamped = max(self.wall_clock(), turns.stamped + 1, node_info.last_alloc_time + 1)
        self._date(turns, commitment.pod.uid)
        return turns.stamped

    def delayed(self, commitment: Commitment) -> None:
        """Note that a Binding will take longer: those of other amounts no longer wait for it."""
        turns, uid = self._turns.get(commitment.node_name), commitment.pod.uid
        if turns is not None and turns.first_tries.pop(uid, None) is not None:
            self._advance(commitment.node_name)

    def settled(self, commitment: Commitment, outcome: BindOutcome) -> None:
        """Note the definite outcome of a Binding, after cluster and queue."""
        turns, uid = self._turns.get(commitment.node_name), commitment.pod.uid
        if turns is None or uid not in turns.bound_at:
            return
        turns.first_tries.pop(uid, None)
        if isinstance(outcome, Bound):
            self._date(turns, uid)
        else:
            del turns.bound_at[uid]
        self._advance(commitment.node_name)

    def noticed(self, uid: str, node_name: str) -> None:
        """Look again after a pod has come, changed or gone; the name is that of the node it is or was on."""
        if not self._waiting:
            return
        wait = self._waiting.get(uid)
        if wait is not None and (outcome := self.changed(wait.commitment)) is not None:
            self._abandon(wait, outcome)
        turns = self._turns.get(node_name)
        if turns is not None and uid in turns.bound_at:
            self._advance(node_name)

    def node_changed(self, name: str) -> None:
        """Let go at once of what waits to be bound to a node that does not take it any more."""
        turns = self._turns.get(name)
        for wait in list(turns.line) if turns is not None else ():
            if self._waiting.get(wait.commitment.pod.uid) is not wait:
                continue  # the turn came when another one left
            outcome = self.changed(wait.commitment)
            if outcome is not None:
                self._abandon(wait, outcome)

    def node_gone(self, name: str) -> None:
        """Let go of a node that is gone; what waits to be bound there cannot be bound."""
        turns = self._turns.pop(name, None)
        for wait in turns.line if turns is not None else ():
            del self._waiting[wait.commitment.pod.uid]
            self.settle(wait.commitment, self.changed(wait.commitment) or Fenced())

    def clear(self) -> None:
        """Give up all Bindings that wait: nothing more is to be sent."""
        for turns in self._turns.values():
            line, turns.line = turns.line, []
            for wait in line:
                del self._waiting[wait.commitment.pod.uid]
                self.settle(wait.commitment, Fenced())

    async def watch_the_clock(self) -> None:
        """Let through, until cancelled, what has waited long enough."""
        while True:
            self._nearer = anyio.Event()
            upcoming = self._reminders[0][0] if self._reminders else math.inf
            with anyio.move_on_after(upcoming - self.clock()):
                await self._nearer.wait()
            self.expire()

    def expire(self) -> None:
        """Look again at the nodes where a pod has been waited for as long as is allowed."""
        now = self.clock()
        while self._reminders and self._reminders[0][0] <= now:
            self._advance(heapq.heappop(self._reminders)[1])

    def _amounts(self, commitment: Commitment) -> _Amounts:
        request = commitment.pod.neuron
        node_info = self.cluster.node(commitment.node_name) if self.enabled and request is not None else None
        if request is None or node_info is None or node_info.machine is None:
            return frozenset()
        return looked_up(request, node_info.machine)

    def _turns_of(self, name: str) -> _Turns:
        turns = self._turns.get(name)
        if turns is None:
            turns = self._turns[name] = _Turns()
        return turns

    def _date(self, turns: _Turns, uid: str) -> None:
        """Count the time of a pod from now, unless it has been given up."""
        if turns.bound_at.get(uid, -math.inf) > -math.inf:
            turns.bound_at[uid] = self.clock()

    def _advance(self, name: str) -> None:
        """Let through what no longer waits for anything, in the order of the line."""
        turns = self._turns.get(name)
        if turns is None or not turns.line:
            return
        turns.due = math.inf
        line, turns.line = turns.line, []
        for wait in line:
            try:
                self._look_at(wait, turns)
            except Exception as error:  # noqa: BLE001 - one pod's
                self._waiting.pop(wait.commitment.pod.uid, None)
                self.crashed(wait.commitment, error)

    def _look_at(self, wait: _Wait, turns: _Turns) -> None:
        """Let a Binding through, or append it to the line again."""
        behind = self._behind(wait, turns, turns.line)
        if behind is not None:
            self._wait_for(wait, turns, *behind)
            turns.line.append(wait)
            return
        outcome = self.changed(wait.commitment)
        if outcome is None:
            self._let_through(wait, turns)
        del self._waiting[wait.commitment.pod.uid]
        if outcome is None:
            self.send(wait.commitment)
        else:
            self.settle(wait.commitment, outcome)

    def _abandon(self, wait: _Wait, outcome: BindOutcome) -> None:
        """Take a Binding that cannot be sent any more out of its line."""
        name = wait.commitment.node_name
        self._turns[name].line.remove(wait)
        del self._waiting[wait.commitment.pod.uid]
        self.settle(wait.commitment, outcome)
        self._advance(name)

    def _let_through(self, wait: _Wait, turns: _Turns) -> None:
        pod, node_info = wait.commitment.pod, self.cluster.node(wait.commitment.node_name)
        pod_infos = {} if node_info is None else node_info.pod_infos
        turns.bound_at = {
            uid: at
            for uid, at in turns.bound_at.items()
            if (pod_info := pod_infos.get(uid)) is not None and not pod_info.pod.admitted
        }
        turns.bound_at[pod.uid] = self.clock()
        turns.first_tries[pod.uid] = pod

    def _behind(self, wait: _Wait, turns: _Turns, ahead: Sequence[_Wait]) -> tuple[Pod, float] | None:
        """Return the pod that a Binding waits for, and until when at most; None if it waits for none."""
        for earlier in ahead:
            if not earlier.amounts.isdisjoint(wait.amounts):
                return earlier.commitment.pod, math.inf
        for pod in turns.first_tries.values():  # whatever its amount: Bindings land in the order of their times
            return pod, math.inf
        now, given_up = self.clock(), list[Pod]()
        latest: tuple[Pod, float] | None = None
        for pod, at in self._confusable(wait, turns):
            if at + LONGEST <= now:
                given_up.append(pod)
            elif latest is None or at + LONGEST > latest[1]:
                latest = (pod, at + LONGEST)
        if latest is None:
            for pod in given_up:
                self._give_up(pod, turns, wait.commitment)
        return latest

    def _confusable(self, wait: _Wait, turns: _Turns) -> Iterator[tuple[Pod, float]]:
        """Yield the pods on the node that the plugin could take for one, and when they were bound."""
        node_info = self.cluster.node(wait.commitment.node_name)
        machine = None if node_info is None else node_info.machine
        if node_info is None or machine is None:
            return
        for uid, pod_info in node_info.pod_infos.items():
            pod = pod_info.pod
            if pod.admitted or pod.neuron is None or looked_up(pod.neuron, machine).isdisjoint(wait.amounts):
                continue
            at = turns.bound_at.get(uid)
            if at is None:
                if self.cluster.is_assumed(uid) or not names_ids(pod):
                    continue  # it is not let through yet; or the plugin has nothing of it to hand out
                at = turns.bound_at[uid] = self._bound_at(pod)
            yield pod, at

    def _bound_at(self, pod: Pod) -> float:
        """Return when a pod that others have bound was bound, on our clock: not later than now, whatever it says."""
        now, wall = self.clock(), self.wall_clock()
        return now - max(0, wall - (alloc_time_of(pod) or wall)) / 1e9

    def _wait_for(self, wait: _Wait, turns: _Turns, pod: Pod, until: float) -> None:
        name = wait.commitment.node_name
        if not wait.told:
            wait.told = True
            log.info(
                "Waiting for another pod's Neuron allocation before binding",
                v=2,
                pod=wait.commitment.pod.key,
                node=name,
                behind=pod.key,
            )
        if until < turns.due:
            turns.due = until
            heapq.heappush(self._reminders, (until, name))
            if self._reminders[0] == (until, name):
                self._nearer.set()

    def _give_up(self, pod: Pod, turns: _Turns, waiting: Commitment) -> None:
        """Wait no more for a pod that has not started; say so once."""
        if turns.bound_at.get(pod.uid, 0.0) == -math.inf:
            return
        turns.bound_at[pod.uid] = -math.inf
        log.warning(
            "Pod has not started; pods with the same Neuron request are bound to its node without waiting for it",
            pod=pod.key,
            node=waiting.node_name,
            waiting=waiting.pod.key,
            seconds=LONGEST,
        )
