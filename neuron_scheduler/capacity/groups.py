"""
The pods that wait, by what an autoscaler does for them and by whether a machine may be asked for.

Refuses to find a place for any.
"""

from collections.abc import Generator
from typing import Final

import attrs

from neuron_scheduler.capacity.counting import Counted
from neuron_scheduler.capacity.lines import Line, lines_of
from neuron_scheduler.capacity.offers import names_a_node
from neuron_scheduler.capacity.question import Question, WaitingPod
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.pod import Pod

_NAMES: Final = ("overdue", "ripe", "unripe", "others", "rest")


@attrs.frozen(kw_only=True)
class Groups:
    """
    The pods that wait, in lines.

    Attributes:
        overdue: hidden, and they have waited so long that they count on no machine that the autoscaler adds for others:
            pods for which it never adds one may come again and again.
        ripe: hidden, and machines may be asked for.
        unripe: hidden, and it is too early to ask.
        others: the autoscaler adds machines for them by itself.
        rest: it should have done so, and nothing came.
    """

    overdue: list[Line]
    ripe: list[Line]
    unripe: list[Line]
    others: list[Line]
    rest: list[Line]

    @property
    def hidden(self) -> list[Line]:
        """The lines of pods for which the autoscaler adds nothing."""
        return [*self.overdue, *self.ripe, *self.unripe]

    @property
    def all(self) -> list[Line]:
        """All lines."""
        return [*self.hidden, *self.others, *self.rest]

    def clear(self) -> None:
        """Let go of all lines."""
        for group in (self.overdue, self.ripe, self.unripe, self.others, self.rest):
            group.clear()


def grouped(
    question: Question, cluster: Cluster, seen: list[WaitingPod], count: Counted
) -> Generator[None, None, Groups]:
    """Put the pods into lines by what the autoscaler does for them."""
    pods: dict[str, list[Pod]] = {name: [] for name in _NAMES}
    for waiting in seen:
        pods[_group_of(waiting, count)].append(waiting.pod)
    lines: dict[str, list[Line]] = {}
    for name in _NAMES:
        lines[name] = yield from lines_of(cluster, pods[name], question.profile_of)
    return Groups(**lines)


def _group_of(waiting: WaitingPod, count: Counted) -> str:
    uid = waiting.pod.uid
    ignored = names_a_node(waiting.pod.constraints)
    if uid in count.hidden or ignored or (uid in count.preferring and not waiting.expects_own):
        if not waiting.may_ask:
            return "unripe"
        return "ripe" if waiting.expects_own else "overdue"
    return "others" if waiting.expects_own else "rest"
