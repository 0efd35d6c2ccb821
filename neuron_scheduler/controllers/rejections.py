"""
Sets a node aside for a while after its kubelet has rejected a pod at admission.

A controller recreates such a pod at once, and nothing has changed in the cluster: it would get the same node and fail
again, hundreds of times an hour. So for a minute the node comes last, and on the node the ids that the pod was to get
come last. Each further rejection doubles that time, up to a quarter of an hour; a pod that starts well there halves it.
Rejections in one burst count once. After that time the node is used as before, and its level is remembered for another
quarter of an hour.

Only a pod that left the watch before it had started may have been rejected. The API server is asked whether it was
(`kube/pod_reads`), at a limited rate: of ten thousand pods that are deleted by force it is asked about a few, and
the others are counted. Nothing is stored: a new leader starts without marks. Does not keep pods off a node: a mark is
only a preference (`scheduling/plugins/node_rejections`).
"""

import math
from collections.abc import Callable, Container
from typing import Final

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import SetAside
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.pod_reads import Failure, PodFailures
from neuron_scheduler.kube.writes.work_queue import WorkQueue
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.neuron.core_mask import NO_CORES, CoreMask
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

FIRST: Final = 60.0
"""Seconds for which a node is set aside at its first rejection."""
LONGEST: Final = 900.0
"""The most seconds for which a node is set aside, and for which its level is remembered afterwards."""
MOST: Final = math.ceil(math.log2(LONGEST / FIRST)) + 1
"""The highest level: a node that is set aside for `LONGEST`."""
BURST: Final = 10.0
"""Seconds in which several rejections by a node count once: their pods may have been bound together."""

READERS: Final = 2
READS_PER_SECOND: Final = 10.0
READS_AT_ONCE: Final = 100
LINES_PER_SECOND: Final = 1.0
LINES_AT_ONCE: Final = 20
LONGEST_MESSAGE: Final = 300

OF_DEVICES: Final = frozenset({"UnexpectedAdmissionError", "TopologyAffinityError"})
"""Reasons of kubelet's device and topology managers: the ids may be at fault."""
OF_NODE: Final = frozenset(
    {
        *("OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods"),
        *("NodeAffinity", "NodePorts", "NodeShutdown", "Evicted"),
    }
)
"""Reasons that are about the node as it is now; other pods, or the same pod recreated, may be rejected for them too."""
OUT_OF: Final = "OutOf"
OTHER: Final = "Other"
EXTENDED: Final = "OutOfExtendedResources"
_REJECTED: Final = "Pod was rejected: "

log = logs.logger(__name__)


@attrs.frozen
class Verdict:
    """
    What a rejection means.

    Attributes:
        reason: one of few, for the metric: as in kubelet's `kubelet_admission_rejections_total`, and Neuron by name.
        of_node: the node may reject another pod too.
        of_devices: the node may accept the pod with other ids.
    """

    reason: str
    of_node: bool = False
    of_devices: bool = False


def verdict(failure: Failure) -> Verdict | None:
    """Return what a failure means; None if it is not a rejection by the kubelet."""
    reason = failure.reason
    if reason in OF_DEVICES or (reason.startswith(OUT_OF) and reason.removeprefix(OUT_OF) in NEURON_NAMES):
        return Verdict(reason, of_node=True, of_devices=True)
    if reason in OF_NODE:
        return Verdict(reason, of_node=True)
    if reason.startswith(OUT_OF):
        return Verdict(EXTENDED, of_node=True)
    return Verdict(OTHER) if failure.message.startswith(_REJECTED) else None


@attrs.frozen
class Mark:
    """
    What is remembered of a node.

    Attributes:
        level, cores: as in `SetAside`.
        raised: when the level was last raised.
        until: when the node is no longer set aside.
    """

    level: int = 0
    cores: CoreMask = NO_CORES
    raised: float = -math.inf
    until: float = -math.inf

    def rejected(self, cores: CoreMask, now: float) -> "Mark":
        """Return the mark after a rejection of a pod with these cores."""
        again = now - self.raised >= BURST
        level = max(1, min(self.level + again, MOST))
        earlier = self.cores if self.until > now else NO_CORES
        return Mark(level, earlier | cores, now if again else self.raised, now + lasting(level))

    def started(self, cores: CoreMask, now: float) -> "Mark":
        """Return the mark after a pod with these cores has started well."""
        level = self.level // 2
        until = min(self.until, now + lasting(level)) if level else self.until
        return attrs.evolve(self, level=level, cores=self.cores & ~cores, until=until)

    def at(self, now: float) -> SetAside | None:
        """Return what is set aside at a time."""
        return SetAside(self.level, self.cores) if self.until > now and (self.level or self.cores) else None

    def changes(self, now: float) -> float:
        """Return when the mark changes without a rejection: first it ends, later it need not be remembered any more."""
        return self.until if self.until > now else self.until + LONGEST


def lasting(level: int) -> float:
    """Return for how many seconds a node of a level above 0 is set aside."""
    return float(min(FIRST * 2 ** (level - 1), LONGEST))


@attrs.define(eq=False, kw_only=True)
class Rejections:
    """
    Sets nodes aside, and ends that when it is due, while it runs.

    Attributes:
        version: returns the resource version of the watch event that is handled now.
        scheduler_names: pods of these schedulers count even without Neuron.
        clock: seconds that never jump.
        may_ask: whether this replica leads.
        errors: reports unexpected exceptions.
    """

    cluster: Cluster
    failures: PodFailures
    metrics: Metrics
    version: Callable[[], str]
    scheduler_names: Container[str]
    clock: Callable[[], float]
    may_ask: Callable[[], bool]
    errors: UnexpectedErrors = attrs.field(factory=UnexpectedErrors)
    _marks: dict[str, Mark] = attrs.field(factory=dict, init=False)
    _departed: WorkQueue[tuple[PodInfo, str]] = attrs.field(  # with the version at which each left the watch
        factory=lambda: WorkQueue(READS_AT_ONCE), init=False
    )
    _reads: TokenBucket = attrs.field(init=False)
    _lines: TokenBucket = attrs.field(init=False)
    _changed: anyio.Event = attrs.field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self._reads = TokenBucket(self.clock, READS_PER_SECOND, READS_AT_ONCE)
        self._lines = TokenBucket(self.clock, LINES_PER_SECOND, LINES_AT_ONCE)

    @property
    def set_aside(self) -> int:
        """How many nodes are set aside, in whole or in part."""
        now = self.clock()
        return sum(mark.at(now) is not None for mark in self._marks.values())

    # Called by the handlers

    def left(self, pod_info: PodInfo) -> None:
        """Note that a pod with a node has left before it had started, and was not terminating."""
        if (pod_info.cores == 0 and pod_info.pod.scheduler_name not in self.scheduler_names) or not self.may_ask():
            return
        version = self.version()
        if not (version and self._reads.take_now() and self._departed.put((pod_info, version))):
            self.metrics.rejection_unread()

    def started(self, pod_info: PodInfo) -> None:
        """Note that a pod has started: its kubelet has admitted it."""
        mark = self._marks.get(pod_info.pod.node_name)
        if mark is not None and pod_info.cores != 0:
            self._put(pod_info.pod.node_name, mark.started(pod_info.cores or NO_CORES, self.clock()))
            self._changed.set()

    def forget(self, name: str) -> None:
        """Note that a node is gone."""
        self._marks.pop(name, None)

    # The service

    async def run(self) -> None:
        """Ask about pods that have left, and end marks when they are due, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(READERS):
                tasks.start_soon(self._ask_about_each)
            while True:
                self._changed = anyio.Event()
                with anyio.move_on_after(self.expire()):
                    await self._changed.wait()

    def expire(self) -> float:
        """End the marks that are due, and return in how many seconds the next one is."""
        now = self.clock()
        for name, mark in list(self._marks.items()):
            self._put(name, mark)
        return min((mark.changes(now) for mark in self._marks.values()), default=math.inf) - now

    async def _ask_about_each(self) -> None:
        while (departed := await self._departed.next()) is not None:
            pod_info, version = departed
            pod = pod_info.pod
            try:
                failure = await self.failures.read(pod, version)
                if failure is not None and (meaning := verdict(failure)) is not None:
                    self._rejected(pod_info, failure, meaning)
            except (ApiError, UnreachableError) as error:
                self.metrics.rejection_unread()
                log.v(2).info("Cannot find out how a pod ended", pod=pod.key, node=pod.node_name, err=error)
            except Exception as error:  # noqa: BLE001 - it is one pod's error
                self.errors.report(error, task="rejection", pod=pod.key)

    def _rejected(self, pod_info: PodInfo, failure: Failure, meaning: Verdict) -> None:
        pod, now, seconds = pod_info.pod, self.clock(), 0.0
        self.metrics.rejected(meaning.reason)
        if meaning.of_node and self.cluster.node(pod.node_name) is not None:
            known = self._marks.get(pod.node_name, Mark())
            mark = known.rejected((pod_info.cores or NO_CORES) if meaning.of_devices else NO_CORES, now)
            self._put(pod.node_name, mark)
            self._changed.set()
            seconds = mark.until - now
        if self._lines.take_now():
            log.warning(
                "Pod was rejected by its node",
                pod=pod.key,
                node=pod.node_name,
                ids=pod.allocation.get(AWS_NEURON_IDS, ""),
                reason=failure.reason[:LONGEST_MESSAGE],
                err=failure.message[:LONGEST_MESSAGE],
                setAsideSeconds=round(seconds),
            )

    def _put(self, name: str, mark: Mark) -> None:
        """Set a mark in the cluster, and remember it as long as it has an effect."""
        now = self.clock()
        self.cluster.set_aside(name, mark.at(now))
        if mark.changes(now) > now and (mark.level or mark.cores):
            self._marks[name] = mark
        else:
            self._marks.pop(name, None)
