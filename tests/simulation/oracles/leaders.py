"""
One replica leads, and only a replica that leads writes to pods.

The fence of the API server hides a replica that wrongly believes that it leads: here it is asked. Two replicas never
both may bind, unless somebody else has deleted or taken the Lease: clocks that do not jump protect also where requests
are lost, late or sent twice. A pod is changed, or asked to end, by a replica that has held the Lease, and no longer ago
than a request may be on its way (decision 3: the server does not fence deletions).
"""

from collections.abc import Iterable

import attrs

from tests.simulation.oracles.change import Change, Key, Oracle, metadata_of, named


@attrs.define(eq=False, kw_only=True)
class Leaders(Oracle):
    """
    Watches who believes that it leads, and who writes.

    Attributes:
        lease: namespace and name.
        duration: of the Lease, in seconds.
        latest: seconds after a replica lost the Lease in which a request of its may still be carried out.
        undelayed: seconds after a replica has known that it may not write in which a deletion may be carried out.
    """

    lease: Key
    duration: float
    latest: float
    undelayed: float = float("inf")
    _holder: str = ""
    _believed_at: dict[str, float] = attrs.field(factory=dict)  # when replicas believed last that they may bind
    _lost_at: dict[str, float] = attrs.field(factory=dict)  # when replicas that held the Lease lost it, by their names
    _meddled_at: float = float("-inf")
    _reported: set[tuple[str, ...]] = attrs.field(factory=set)

    def changed(self, change: Change) -> None:
        """Follow the Lease, and judge what a replica writes to a pod."""
        if change.kind == "Lease" and change.key == self.lease:
            spec = (change.object.get("spec") or {}) if change.after is not None else {}
            self._held(change.at, str(spec.get("holderIdentity") or ""), by_replica=bool(change.author))
        elif change.kind == "Pod" and change.author:
            self._written(change, change.author)

    def _written(self, change: Change, author: str) -> None:
        """Judge what a replica writes to a pod."""
        believed_at = self._believed_at.get(author)
        if _ends(change) and believed_at is not None and change.at - believed_at > self.undelayed:
            late = f"{change.at - believed_at:.1f} s after it could know that it may not"
            self.violated(f"{author} has deleted pod {named(change.object)} {late}")
        if author != _replica(self._holder):
            lost_at = self._lost_at.get(author)
            if lost_at is None:
                self.violated(f"{author} has changed pod {named(change.object)} and never held the Lease")
            elif change.at - lost_at > self.latest:
                late = f"{change.at - lost_at:.1f} s after it lost the Lease"
                self.violated(f"{author} has changed pod {named(change.object)} {late}")

    def _held(self, at: float, holder: str, *, by_replica: bool) -> None:
        if holder == self._holder:
            return
        if self._holder:
            self._lost_at[_replica(self._holder)] = at
        if not by_replica:
            self._meddled_at = at
        self._holder = holder

    def believed(self, now: float, replicas: Iterable[str]) -> None:
        """Note which replicas believe now that they may bind; asked now and then, and at each write of theirs."""
        leading = tuple(sorted(replicas))
        self._believed_at |= dict.fromkeys(leading, now)
        if len(leading) > 1 and now - self._meddled_at > self.duration and leading not in self._reported:
            self._reported.add(leading)
            self.violated(f"{' and '.join(leading)} both may bind")


def _ends(change: Change) -> bool:
    """Return whether a change asks a pod to end, or removes it."""
    return change.after is None or bool(
        metadata_of(change.object).get("deletionTimestamp")
        and not metadata_of(change.previous or {}).get("deletionTimestamp")
    )


def _replica(identity: str) -> str:
    """Return the name of the replica in an identity."""
    return identity.rpartition("_")[0]
