"""
What a plan of capacity is asked, and what it answers.

Refuses to know the time: who asks says which pods have waited long enough.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from neuron_scheduler.capacity.machine_need import MachineNeed
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.cycle.profile import Profile

MOST_NEEDS: Final = 64
"""
Machines that one plan asks for at most: no limit of a profile lets so many be asked for at once.

A plan does not stop at the limits: the pods of the machines beyond them are told which limit it is, and are counted.
"""


def _all_of(_pod: Pod) -> int:
    return MOST_NEEDS


@attrs.frozen
class WaitingPod:
    """
    A pod that waits in the queue, whether its profile asks for machines or not: others' pods take up room as well.

    Attributes:
        pod: as it was last seen, with its condition.
        may_ask: it has waited long enough, its profile asks for machines, and no machine for it was given up lately.
        expects_own: the autoscaler may still add a machine for it, or for others beside whom it has room; false after
            it has waited so long for one that none will come.
    """

    pod: Pod
    may_ask: bool = True
    expects_own: bool = True


@attrs.frozen(kw_only=True)
class Question:
    """
    Which machines do the waiting pods need?

    Attributes:
        cluster: as it is now; the plan works on forks of it.
        waiting: all pods that wait, the most urgent first. Only those that an autoscaler sees matter: their condition
            has the reason `Unschedulable`, and they have no nominated node.
        profile_of: the profile that decides a pod.
        open: the requests that are out, and those whose machine is on its way or not ready yet, by their id, the oldest
            first. A request whose machine takes pods already is none of them.
        awaited: those of the open requests whose machine has not come.
        stuck: uids of pods that have been about to go for so long that nothing is expected of them any more.
        most_of: how many machines are of interest that are for a pod's profile and namespace, as limits count them: no
            namespace keeps the plan from looking at the others.
        most_needs: new machines that are of interest.
    """

    cluster: Cluster
    waiting: Sequence[WaitingPod]
    profile_of: Callable[[Pod], Profile]
    open: Mapping[str, MachineNeed]
    awaited: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    most_of: Callable[[Pod], int] = _all_of
    most_needs: int = MOST_NEEDS


@attrs.frozen(kw_only=True)
class Plan:
    """
    What the waiting pods need.

    Attributes:
        needs: machines to be asked for beside the open requests; the one with the most urgent pod comes first.
        serving: the uids of the pods that would be on the machine of each open request that has any.
        surplus: open requests whose machine no pod needs.
        hopeless: why no machine is asked for, by the uid of a pod that may ask, and needs one.
        without_place: uids of the hidden pods that no machine serves which is there, asked for or expected.
        leaving: uids of pods on nodes that are about to go, `stuck` ones as well.
    """

    needs: tuple[MachineNeed, ...] = ()
    serving: Mapping[str, tuple[str, ...]]
    surplus: tuple[str, ...] = ()
    hopeless: Mapping[str, str]
    without_place: frozenset[str] = frozenset()
    leaving: tuple[str, ...] = ()
