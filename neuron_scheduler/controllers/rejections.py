"""
Sets a node aside for five minutes after its kubelet has rejected a pod with Neuron at admission.

A controller recreates such a pod at once: it would get the same node and fail again, hundreds of times an hour. So the
node comes last, and the ids that the pod was to get come last on it. This is only a preference
(`scheduling/plugins/avoid_rejecting_nodes`).

Only a pod that left the watch before it had started may have been rejected. The API server is asked about it
(`kube/pod_reads`) at a limited rate; the other pods are counted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import ClassVar, Final

import anyio
import attrs

from neuron_scheduler.cluster.changes import Change, Kinds, NodeGone, PodGone
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.pod_info import PodInfo
from neuron_scheduler.kube.http.pacing import TokenBucket
from neuron_scheduler.kube.pod_reads import Failure
from neuron_scheduler.model.annotations import AWS_NEURON_IDS
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.resources import NEURON_NAMES
from neuron_scheduler.neuron.core_mask import NO_CORES
from neuron_scheduler.telemetry import logs
from neuron_scheduler.telemetry.errors import ApiError, UnreachableError
from neuron_scheduler.telemetry.metrics import Metrics
from neuron_scheduler.telemetry.unexpected import UnexpectedErrors

LASTING: Final = 300.0
"""Seconds for which a node is set aside after a rejection."""
PERIOD: Final = 5.0
"""Seconds between two looks at what need not be set aside any more."""

READERS: Final = 2
READS_PER_SECOND: Final = 10.0
READS_AT_ONCE: Final = 100
LINES_PER_SECOND: Final = 1.0
LINES_AT_ONCE: Final = 20
LONGEST_MESSAGE: Final = 300

OUT_OF: Final = "OutOf"
KNOWN: Final = frozenset(
    {
        *("UnexpectedAdmissionError", "TopologyAffinityError"),  # of the device and topology managers
        *("OutOfcpu", "OutOfmemory", "OutOfephemeral-storage", "OutOfpods", *(OUT_OF + name for name in NEURON_NAMES)),
        *("NodeAffinity", "NodePorts", "NodeShutdown", "Evicted"),
    }
)
"""Reasons that are about the node or its devices; other pods, or the same pod recreated, may be rejected for them."""
EXTENDED: Final = "OutOfExtendedResources"
OTHER: Final = "Other"
"""Stands for reasons that are about the pod alone: it would be rejected by every node."""
_REJECTED: Final = "Pod was rejected: "

log = logs.logger(__name__)


def rejection(failure: Failure) -> str:
    """Return why the kubelet has rejected a pod, in one of few words for the metric; empty if it has not."""
    reason = failure.reason
    if reason in KNOWN:
        return reason
    if reason.startswith(OUT_OF):
        return EXTENDED
    return OTHER if failure.message.startswith(_REJECTED) else ""


@attrs.define(eq=False, kw_only=True)
class Rejections:
    """
    Sets nodes aside, and ends that after a while, as long as it runs.

    Attributes:
        failure_of: returns how a pod had failed at a version of the watch (`kube/pod_reads`).
        version: returns the resource version of the watch event that is handled now.
        may_bind: whether this replica leads.
    """

    OBSERVES: ClassVar[Kinds] = (PodGone, NodeGone)

    cluster: Cluster
    failure_of: Callable[[Pod, str], Awaitable[Failure | None]]
    metrics: Metrics
    version: Callable[[], str]
    clock: Callable[[], float]
    may_bind: Callable[[], bool]
    errors: UnexpectedErrors
    _until: dict[str, float] = attrs.field(factory=dict, init=False)  # by the name of the node that is set aside
    _departed: asyncio.Queue[tuple[PodInfo, str]] = attrs.field(  # with the version at which each left the watch
        factory=lambda: asyncio.Queue(READS_AT_ONCE), init=False
    )
    _reads: TokenBucket = attrs.field(init=False)
    _lines: TokenBucket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._reads = TokenBucket(self.clock, READS_PER_SECOND, READS_AT_ONCE)
        self._lines = TokenBucket(self.clock, LINES_PER_SECOND, LINES_AT_ONCE)

    @property
    def set_aside_count(self) -> int:
        return len(self._until)

    def observe(self, change: Change) -> None:
        match change:
            case NodeGone(node_name):
                self._until.pop(node_name, None)
            case PodGone(pod, held) if held is not None and held.pod.started is None:
                if not (pod.terminating or held.unreadable):
                    self._note_departure(held)

    def _note_departure(self, pod_info: PodInfo) -> None:
        if pod_info.cores == 0 or not self.may_bind():  # without Neuron any tenant's pod may name its node
            return
        version = self.version()
        if version and self._reads.take_now() and not self._departed.full():
            self._departed.put_nowait((pod_info, version))
        else:
            self.metrics.count_unread_rejection()

    async def run(self) -> None:
        """Ask about pods that have left, and use nodes as before when their time is over, until cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(READERS):
                tasks.start_soon(self._ask_about_each)
            while True:
                await anyio.sleep(PERIOD)
                self.expire()

    def expire(self) -> None:
        now = self.clock()
        for name in [name for name, until in self._until.items() if until <= now]:
            del self._until[name]
            self.cluster.set_aside(name, None)

    async def _ask_about_each(self) -> None:
        while True:
            pod_info, version = await self._departed.get()
            pod = pod_info.pod
            try:
                failure = await self.failure_of(pod, version)
                if failure is not None and (reason := rejection(failure)):
                    self._handle_rejection(pod_info, failure, reason)
            except (ApiError, UnreachableError) as error:
                self.metrics.count_unread_rejection()
                log.v(2).info("Cannot find out how a pod ended", pod=pod.key, node=pod.node_name, err=error)
            except Exception as error:  # noqa: BLE001 - it is one pod's error
                self.errors.report(error, task="rejection", pod=pod.key)

    def _handle_rejection(self, pod_info: PodInfo, failure: Failure, reason: str) -> None:
        pod, seconds = pod_info.pod, 0.0
        self.metrics.count_rejection(reason)
        node_info = self.cluster.node(pod.node_name)
        if reason != OTHER and node_info is not None:
            seconds = LASTING
            self._until[pod.node_name] = self.clock() + seconds
            ids = pod_info.cores or NO_CORES
            self.cluster.set_aside(pod.node_name, ids | (node_info.set_aside or NO_CORES))
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
