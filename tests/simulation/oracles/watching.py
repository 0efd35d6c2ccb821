"""
Shows a running simulation to all oracles: each committed change at once, the replicas now and then, and the end.

Looking at a replica costs time, so its memory is compared at moments that the seed chooses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, Protocol

import attrs

from neuron_scheduler.kube.objects.base import Resource
from neuron_scheduler.kube.objects.devices import CLAIM_KINDS
from neuron_scheduler.wiring import Parts
from sandbox.apiserver import metadata
from sandbox.apiserver.store import Store
from tests.simulation.clock import BOOTED, CLOCK, START
from tests.simulation.deeds import Apply
from tests.simulation.history import History
from tests.simulation.http_faults import LATE, WEBHOOK
from tests.simulation.oracles.bounds import Bounds
from tests.simulation.oracles.change import ADDED, Change, Object, uid_of, version_of
from tests.simulation.oracles.conditions import Conditions
from tests.simulation.oracles.evictions import Evictions
from tests.simulation.oracles.groups import Groups
from tests.simulation.oracles.judge import LEASE, Changes, Terms, of_changes
from tests.simulation.oracles.kept_leases import KeptLeases
from tests.simulation.oracles.last_fault import FAULTS, last_fault_ends, news_may_be_late
from tests.simulation.oracles.lasting import hooked, stays_in_doubt, unbindable
from tests.simulation.oracles.leaders import Leaders
from tests.simulation.oracles.lease_progress import LeaseProgress
from tests.simulation.oracles.liveness import Liveness
from tests.simulation.oracles.memory import Memory
from tests.simulation.oracles.promptness import Promptness
from tests.simulation.oracles.reading import node_name_of
from tests.simulation.oracles.unexpected import KILLED, Unexpected
from tests.simulation.oracles.workloads import Workloads
from tests.simulation.process import Process
from tests.simulation.scenario import Scenario

GLANCE: Final = 0.25
"""Virtual seconds between two looks at the processes."""
FITTING: Final = 2.0
"""Virtual seconds between two looks at the pods that wait, when all is quiet."""
SAMPLES: Final = (3.0, 15.0)
"""Virtual seconds between two comparisons of a replica's memory."""
SETTLED: Final = 5.0
"""Seconds without any change of pods, nodes or processes after which memory equals the API server's objects."""
_LATE_CACHES: Final = frozenset({"cache late", "policy late"})
_SLOW: Final = 0.000_5
"""Virtual seconds for a look at the clock, above which machines are slow."""
_HARMLESS: Final = frozenset({"kubelet slow"})
"""Faults that delay no Binding but those that wait for that kubelet."""
_DELAYS: Final = frozenset({"late", LATE, "sent twice", "sent again later", "connection silent"})
"""What makes a request of the past arrive now."""
UNDELAYED: Final = 2.0
"""Seconds in which a request arrives otherwise; a server may be frozen for longer, but not by faults alone."""
_REFUSALS: Final = ("401", "403")


class Watched(Protocol):
    """A replica of the scheduler, as oracles look at it."""

    @property
    def process(self) -> Process:
        """The present process, or the last one."""

    @property
    def parts(self) -> Parts | None:
        """Its parts; None until they are built."""

    @property
    def ends(self) -> Sequence[Process]:
        """The processes that have ended."""


class Stored(Protocol):
    """The world, as oracles look at it."""

    @property
    def store(self) -> Store:
        """What all API servers have."""

    @property
    def listeners(self) -> list[Callable[[Change], None]]:
        """Called with each committed change, in the step that commits it."""


def terms_of(scenario: Scenario) -> Terms:
    """Return what is promised in a scenario."""
    lag = max((fault.seconds for fault in scenario.faults if fault.kind in _LATE_CACHES), default=0.0)
    longest = max((fault.seconds for fault in scenario.faults if fault.kind != "wrong clock"), default=0.0)
    return Terms(
        lease=LEASE,
        fenced=scenario.fenced,
        lag=lag + 0.5,
        latest=30.0 + 2 * longest,
        told_within=lag + (60.0 if news_may_be_late(scenario) else 5.0),
        started_at=START,
    )


@attrs.define(eq=False, kw_only=True)
class Watching:
    """
    All oracles of one simulation.

    Attributes:
        untold: namespaces for whose pods no condition can be written.
    """

    scenario: Scenario
    store: Store
    replicas: Mapping[str, Watched]
    history: History
    changes: Changes
    liveness: Liveness
    promptness: Promptness
    progress: LeaseProgress
    leaders: Leaders
    kept_leases: KeptLeases
    evictions: Evictions
    groups: Groups
    workloads: Workloads
    conditions: Conditions
    unexpected: Unexpected
    bounds: Bounds
    memory: Memory
    dice: Random
    untold: frozenset[str]
    _glance_at: float = 0.0
    _fitting_at: float = 0.0
    _sample_at: dict[str, float] = attrs.field(factory=dict)
    _ends_seen: dict[str, int] = attrs.field(factory=dict)
    _refused: set[str] = attrs.field(factory=set)  # replicas whose present process was refused a right or a credential
    _restarted_at: float = 0.0
    _changed_at: float = 0.0

    def committed(self, change: Change) -> None:
        """
        Show a committed change to the oracles, in the step that makes it.

        A replica that has just taken the Lease may delete a victim before the next glance, so who leads is looked at
        when a replica's write is committed.
        """
        if change.kind == "Pod" and change.author:
            self.leaders.believed(change.at, self._may_bind())
        self.changes.changed(change)
        for oracle in (self.leaders, self.evictions, self.groups, self.promptness, self.conditions, self.bounds):
            oracle.changed(change)
        if change.kind in {"Pod", "Node", "ResourceClaim", "ResourceSlice"}:
            self._changed_at = CLOCK.now

    def logged(self, replica: str, line: str) -> None:
        if replica in self.replicas:
            self.unexpected.logged(replica, line)
            self.kept_leases.logged(CLOCK.now, replica, line)
            self.bounds.logged(CLOCK.now, replica)

    def requested(self, replica: str, outcome: str) -> None:
        if replica in self.replicas:
            self.bounds.requested(CLOCK.now, replica)
            if outcome.startswith(_REFUSALS):
                self._refused.add(replica)

    def stepped(self, _process: Process) -> None:
        """Look at the processes now and then; called after each step of any."""
        now = CLOCK.now
        if now < self._glance_at:
            return
        self._glance_at = now + GLANCE
        for name, replica in self.replicas.items():
            self._glance(name, replica, now)
        leaders = self._may_bind()
        self.leaders.believed(now, leaders)
        if self._is_calm:
            self.promptness.looked(now, leads=bool(leaders), decided=self._decided())
        if now >= max(self._fitting_at, self.liveness.quiet_at):
            self._fitting_at = now + FITTING
            self.liveness.sampled(now, restarted_at=self._restarted_at, alive=self._any_alive())

    def ended(self) -> None:
        """Look at everything once more, at the end."""
        now = CLOCK.now
        for name, replica in self.replicas.items():
            self._glance(name, replica, now)
            parts = replica.parts
            if not replica.process.alive or parts is None:
                continue
            self.memory.sampled(name, parts, self._exists)
            in_doubt = {parts.cluster.node_of(uid) or "" for uid in parts.cluster._assumed}
            self.bounds.remembered(name, now, parts, in_doubt)
            if now - max(self._changed_at, self._restarted_at, self.scenario.quiet_at) > SETTLED:
                self._at_rest(name, parts)
        self.liveness.sampled(now, restarted_at=self._restarted_at, alive=self._any_alive())
        quiet_since = max(self.scenario.quiet_at, self._restarted_at)
        left_out = self._without_message()
        self.conditions.silent(now, self.store.objects("pods"), quiet_since=quiet_since, left_out=left_out)
        self.groups.silent(now, quiet_since=quiet_since, left_out=left_out)
        self.changes.claims.silent(now, quiet_since=quiet_since, left_out=self._decided())
        self.workloads.ended()

    def _at_rest(self, name: str, parts: Parts) -> None:
        if any(not informer.synced.is_set() or informer.is_stale for informer in parts.informers):
            self.history.violation("liveness", f"{name} has not listed or watched for long, and the API server works")
            return
        in_doubt = {binding.pod.uid for binding in parts.binder._open if stays_in_doubt(self.scenario, binding)}
        self.memory.quiet(name, parts, self._read, in_doubt)
        count = len(parts.binder._open) - len(in_doubt)
        if count:
            self.history.violation("liveness", f"{name} has {count} Bindings without an outcome")

    def _glance(self, name: str, replica: Watched, now: float) -> None:
        self._ends(name, replica, now)
        parts, process = replica.parts, replica.process
        if parts is None or not process.alive:
            return
        if parts.election is not None and parts.election.is_leading and not process.is_stopped:
            self.progress.looked(parts.election.identity, now + BOOTED, parts.scheduling_loop.looked_at)
        if now >= self._sample_at.setdefault(name, now + self.dice.uniform(*SAMPLES)):
            self._sample_at[name] = now + self.dice.uniform(*SAMPLES)
            self.memory.sampled(name, parts, self._exists)
            self.bounds.tasks(name, len(process.tasks), parts.binder.in_flight)

    def _ends(self, name: str, replica: Watched, now: float) -> None:
        for process in replica.ends[self._ends_seen.get(name, 0) :]:
            self._restarted_at = now
            faults = [fault for fault in self.scenario.faults if fault.at <= now and fault.target in ("", name)]
            kinds = {fault.kind for fault in faults}
            self.unexpected.ended(
                name,
                -1 if process.exit_code is None else process.exit_code,
                asked="terminated" in kinds,
                killed="killed" in kinds or process.exit_code != KILLED,
                refused=name in self._refused,
            )
            self._refused.discard(name)
        self._ends_seen[name] = len(replica.ends)

    def _may_bind(self) -> list[str]:
        """Return the replicas that believe that they lead."""
        return [
            name
            for name, replica in self.replicas.items()
            if replica.process.alive
            and replica.parts is not None
            and replica.parts.election is not None
            and replica.parts.election.may_bind()
        ]

    def _without_message(self) -> set[str]:
        """
        Return the uids of the pods that need no message: a replica has decided them, or cannot read them.

        Nor can a pod have one whose stored metadata is invalid: the API server refuses every change of it (422). Its
        Event says why it waits.
        """
        parts = [replica.parts for replica in self.replicas.values() if replica.parts is not None]
        unreadable = {malformed.uid for part in parts for malformed in part.pods._store._malformed.values()}
        pods = self.store.objects("pods")
        untold = {uid_of(pod) for pod in pods if pod["metadata"]["namespace"] in self.untold}
        fixed = {uid_of(pod) for pod in pods if any(metadata.validate(pod["metadata"]))}
        return unreadable.union(untold, fixed, self._decided())

    def _decided(self) -> set[str]:
        """Return the uids of the pods that a replica has decided, and that wait for their Bindings."""
        parts = [replica.parts for replica in self.replicas.values() if replica.parts is not None]
        return set[str]().union(*(part.cluster._assumed for part in parts))

    @property
    def _is_calm(self) -> bool:
        """Whether nothing delays what a scheduler does."""
        faults = {fault.kind for fault in self.scenario.faults} - _HARMLESS
        deeds = any(isinstance(deed, FAULTS) for deed in self.scenario.deeds)
        return not faults and not deeds and self.scenario.per_look <= _SLOW

    def _any_alive(self) -> bool:
        return any(replica.process.alive for replica in self.replicas.values())

    def _exists(self, key: str, uid: str) -> bool:
        """Return whether the API server has this very pod, without a node."""
        pod = self.store.get("pods", *key.split("/"))
        return pod is not None and uid_of(pod) == uid and not node_name_of(pod)

    def _read(self, resource: Resource[Any]) -> Iterable[Object]:
        return self.store.objects(resource.name)


def watching(scenario: Scenario, world: Stored, replicas: Mapping[str, Watched], history: History) -> Watching:
    """Let all oracles watch a simulation from now on; what the store has already is shown to them first."""
    report, store, terms = history.violation, world.store, terms_of(scenario)
    liveness = Liveness(
        report=report, tables=store.objects, quiet_at=last_fault_ends(scenario), left_out=unbindable(scenario)
    )
    changes = of_changes(terms, report)
    watch = Watching(
        scenario=scenario,
        store=store,
        replicas=replicas,
        history=history,
        changes=changes,
        liveness=liveness,
        promptness=Promptness(report=report, liveness=liveness),
        progress=LeaseProgress(report=report),
        leaders=Leaders(
            report=report,
            lease=LEASE,
            duration=scenario.lease[0],
            latest=terms.latest,
            undelayed=float("inf") if _DELAYS & {fault.kind for fault in scenario.faults} else UNDELAYED,
        ),
        kept_leases=KeptLeases(report=report, scenario=scenario),
        evictions=Evictions(report=report),
        groups=Groups(
            report=report,
            pods=lambda: store.objects("pods"),
            fits=liveness.place_for,
            nodes=changes.nodes,
            late=max((fault.seconds for fault in scenario.faults if fault.kind in _DELAYS), default=0.0),
        ),
        workloads=Workloads(
            report=report,
            applied=tuple(deed for deed in scenario.deeds if isinstance(deed, Apply)),
            pods=lambda: store.objects("pods"),
        ),
        conditions=Conditions(report=report),
        unexpected=Unexpected(report=report),
        bounds=Bounds(report=report, most_tasks=136 + 2 * len(CLAIM_KINDS) * scenario.claims),
        memory=Memory(report=report),
        dice=Random(f"{scenario.seed}/oracles"),
        untold=hooked(scenario, WEBHOOK)["statuses"],
    )
    for table in ("nodes", "pods", "leases"):
        for obj in store.objects(table):
            watch.committed(Change(at=0.0, version=version_of(obj), type=ADDED, object=obj, author=""))
    world.listeners.append(watch.committed)
    history.on_log, history.on_request = watch.logged, watch.requested
    return watch
