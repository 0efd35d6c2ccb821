"""
What has happened since the queue last looked, and which waiting pods it may help.

Events come in bursts: they are put together by kind, with the pods, the nodes and the claims they happened to, and
weighed once. Waiting pods stand in groups of equal (refusing plugins, need, interest in other pods), so that what is
asked is asked of groups. Where the details are unknown, or too many, an event may help everybody it is registered for.
"""

from collections.abc import Collection, Iterator, Mapping, Set as AbstractSet
from functools import partial

import attrs

from neuron_scheduler.model.pod import Pod
from neuron_scheduler.scheduling.events import (
    MAY_HELP,
    MOST_ASKED,
    ClusterEvent,
    Interest,
    Moved,
    interest_of,
    may_help,
    moved,
)
from neuron_scheduler.scheduling.hints import NOTHING_NEEDED, Change, Need, may_accept, need_of

_MOST_CHECKS = 20_000
"""Groups times changed nodes; beyond, a hint for each costs more than the attempts it saves."""


@attrs.frozen(cache_hash=True)
class Group:
    """
    What waiting pods have in common.

    Attributes:
        plugins: who refused them last.
        need: what those look at in the pods, of the plugins that judge a node by itself.
        interest: which other pods matter to them; None if no plugin that counts pods refused them.
        scheduler_name: their profile.
    """

    plugins: frozenset[str] = frozenset()
    need: Need = NOTHING_NEEDED
    interest: Interest | None = None
    scheduler_name: str = ""


def group_of(pod: Pod, plugins: frozenset[str], *, promised: bool = False) -> Group:
    """Return the group of a pod that these plugins refused."""
    return Group(plugins, need_of(pod, plugins, promised=promised), interest_of(pod, plugins), pod.scheduler_name)


@attrs.frozen
class Helped:
    """
    An event and a group that it may help.

    Attributes:
        claims: only the pods that use one of them; None for all.
    """

    event: ClusterEvent
    group: Group
    claims: AbstractSet[str] | None = None

    def means(self, pod: Pod) -> bool:
        """Tell whether the event may help this pod of the group."""
        names = pod.constraints.volume_claims
        return self.claims is None or any(f"{pod.namespace}/{name}" in self.claims for name in names)


@attrs.define(eq=False)
class Noted:
    """Events by kind, each with what it happened to: None stands for what is not known."""

    _pods: dict[ClusterEvent, set[Moved | None]] = attrs.field(factory=dict)
    _changes: dict[ClusterEvent, dict[str, Change] | None] = attrs.field(factory=dict)
    _claims: dict[ClusterEvent, set[str]] = attrs.field(factory=dict)

    def __bool__(self) -> bool:
        return bool(self._pods or self._claims)

    def note(self, event: ClusterEvent, pods: Collection[Pod], on: Change | None) -> None:
        """Take an event, with the pods it happened to and the node it happened on, if they are known."""
        known = self._pods.setdefault(event, set())
        if len(known) <= MOST_ASKED:
            known.update(moved(event, pods))
        changes = self._changes.setdefault(event, {})
        if on is None or changes is None or len(changes) > _MOST_CHECKS:
            self._changes[event] = None
            return
        name = on.state.node.name
        earlier = changes.get(name)  # of a node that changed twice, the latest row and what was before all of it
        changes[name] = on if earlier is None else Change(on.state, earlier.before)

    def note_claim(self, event: ClusterEvent, claim: str) -> None:
        """Take an event that concerns only the pods that use a claim."""
        self._claims.setdefault(event, set()).add(claim)

    def helped(self, groups: Collection[Group]) -> Iterator[Helped]:
        """Yield whom each event may help; `groups` may change meanwhile."""
        for event in sorted(self._pods):
            for group in self._helped(event, groups):
                yield Helped(event, group)
        for event in sorted(self._claims):
            for group in [group for group in groups if group.plugins & MAY_HELP[event]]:
                yield Helped(event, group, self._claims[event])

    def _helped(self, event: ClusterEvent, groups: Collection[Group]) -> list[Group]:
        """Return the groups that the event may help; all of them if a hint fails, as upstream does with an error."""
        try:
            return self._hinted(event, groups)
        except Exception:  # noqa: BLE001 - a needless attempt does no harm, and reports what is wrong
            return list(groups)

    def _hinted(self, event: ClusterEvent, groups: Collection[Group]) -> list[Group]:
        pods, changes = self._pods[event], self._changes[event]
        if changes is None or len(changes) * len(groups) > _MOST_CHECKS:
            return [group for group in groups if may_help(event, pods, group.plugins, group.interest)]
        return [
            group
            for group in groups
            if may_help(event, pods, group.plugins, group.interest, local=partial(_accepts, group.need, changes))
        ]


def _accepts(need: Need, changes: Mapping[str, Change], plugins: frozenset[str]) -> bool:
    return may_accept(need, plugins, changes.values())
