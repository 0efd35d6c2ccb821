"""
Keeps the space that kube-scheduler frees for a pod with Neuron until the pod gets it.

kube-scheduler names the node in the pod's status and deletes pods there. It keeps a number of devices free, but no
block: other pods would take their devices one by one. So the nomination is adopted from the status, with the cores that
come free. It ends with the pod, with the status, for a pod of higher priority, while the node would refuse the pod, and
after `LONGEST`. Every replica does this, so a follower answers `filter` as the leader does.
"""

from collections.abc import Callable, Container
from typing import ClassVar, Final

import anyio
import attrs

from neuron_scheduler.cluster.changes import Change, Kinds, PodBound, PodGone, PodPending, SpaceChanged
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.controllers.commitment import note_freed
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile
from neuron_scheduler.scheduling.plugins.node_resources_fit import without_other_resources
from neuron_scheduler.scheduling.preemption.nominations import rebuild
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.telemetry import logs

LONGEST: Final = 600.0
"""Seconds for which space is kept: more than the grace period of most pods, in case nobody schedules the pod."""
PERIOD: Final = 30.0
"""Seconds between two looks at what has been kept for too long."""

log = logs.logger(__name__)


@attrs.frozen
class _Wish:
    pod: Pod
    since: float


@attrs.define(eq=False, kw_only=True)
class ForeignNominations:
    """
    The nominations of pods that kube-scheduler schedules.

    Attributes:
        profile: what is decided beside kube-scheduler (`extender_profile`).
        own_names: pods of these schedulers are in our queue.
    """

    OBSERVES: ClassVar[Kinds] = (PodPending, PodBound, PodGone, SpaceChanged)

    cluster: Cluster
    queue: SchedulingQueue
    profile: Profile
    own_names: Container[str]
    clock: Callable[[], float]
    _wishes: dict[str, _Wish] = attrs.field(factory=dict, init=False)  # by uid

    async def run(self) -> None:
        while True:
            await anyio.sleep(PERIOD)
            self.expire()

    def observe(self, change: Change) -> None:
        match change:
            case PodPending(pod) if pod.scheduler_name not in self.own_names:
                self._look_at_status(pod)
            case PodGone(pod, _, freed):
                self._wishes.pop(pod.uid, None)  # the cluster has dropped its nomination
                self._adopt_on(freed)
            case PodBound(after=pod_info):
                self._wishes.pop(pod_info.pod.uid, None)
                self._adopt_on(pod_info.pod.node_name)
            case SpaceChanged(node_name):
                self._adopt_on(node_name)

    def _look_at_status(self, pod: Pod) -> None:
        known = self._wishes.get(pod.uid)
        if pod.neuron is None or not pod.nominated_node_name or pod.terminating:
            if known is not None:
                self._drop(known.pod)
                del self._wishes[pod.uid]
            return
        if known is not None and known.pod.nominated_node_name == pod.nominated_node_name:
            wish = attrs.evolve(known, pod=pod)
        else:
            wish = _Wish(pod, self.clock())
            if known is not None:
                self._drop(known.pod)
        self._wishes[pod.uid] = wish
        self._adopt(wish)

    def _adopt_on(self, name: str) -> None:
        """Look again at a node that has come or changed: it may have refused a pod, and take it now."""
        for wish in self._wishes.values():
            if wish.pod.nominated_node_name == name:
                self._adopt(wish)

    def expire(self) -> None:
        now = self.clock()
        for wish in self._wishes.values():
            if now - wish.since > LONGEST and self.cluster.nomination(wish.pod.uid) is not None:
                pod = wish.pod
                log.warning(
                    "Space is not kept any longer for a pod that kube-scheduler has nominated",
                    pod=pod.key,
                    node=pod.nominated_node_name,
                    seconds=LONGEST,
                )
                self._drop(pod)

    def _adopt(self, wish: _Wish) -> None:
        """Keep the space if the pod fits there once the pods that kube-scheduler has deleted are gone."""
        pod = wish.pod
        has_space = self.cluster.nomination(pod.uid) is not None or self.cluster.node_of(pod.uid) is not None
        if has_space or self.clock() - wish.since > LONGEST:
            return
        nomination = self._rebuilt(pod)
        if nomination is not None:
            self.cluster.nominate(pod.nominated_node_name, nomination)
            node_name = pod.nominated_node_name
            log.info("Keeping space for a pod that kube-scheduler has nominated", v=2, pod=pod.key, node=node_name)

    def _rebuilt(self, pod: Pod) -> Nomination | None:
        """Return the nomination with all that the pod asks for if the node has it, otherwise with what we judge."""
        nomination = rebuild(self.cluster, pod, self.profile)
        judged = attrs.evolve(without_other_resources(pod), host_ports=())
        return rebuild(self.cluster, judged, self.profile) if nomination is None and judged != pod else nomination

    def _drop(self, pod: Pod) -> None:
        if self.cluster.clear_nomination(pod.uid) is not None:
            note_freed(self.cluster, self.queue, pod, pod.nominated_node_name)
