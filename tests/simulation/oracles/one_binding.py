"""
A pod is bound once, and by the holder of the Lease where the policy is in place.

The policy compares a Binding's sender with the Lease as the API server's own watch last showed it (decisions 3 and
8). So the sender must have held the Lease at the commit, or within the lag of that watch before it; while there is no
Lease, anybody may bind. With or without the policy the sender has held the Lease at some time, and no longer ago than a
Binding may take that was begun in time.
"""

import attrs

from tests.simulation.oracles.change import Change, Key, Object, Oracle, annotations_of, named
from tests.simulation.oracles.reading import LEADER, newly_bound, node_name_of


@attrs.define(eq=False, kw_only=True)
class OneBinding(Oracle):
    """
    Watches Bindings and the Lease.

    Attributes:
        lease: namespace and name.
        fenced: the policy is in place.
        lag: seconds by which the API server's watch of the Lease may be late.
        latest: seconds after its sender last held the Lease in which a Binding may still be committed.
    """

    lease: Key
    fenced: bool
    lag: float
    latest: float
    _holders: list[tuple[float, str | None]] = attrs.field(factory=lambda: [(float("-inf"), None)])
    _node: dict[str, str] = attrs.field(factory=dict)  # by the pod's uid

    def changed(self, change: Change) -> None:
        if change.kind == "Lease" and change.key == self.lease:
            holder = None if change.after is None else str((change.after.get("spec") or {}).get("holderIdentity") or "")
            if holder != self._holders[-1][1]:
                self._holders.append((change.at, holder))
        elif change.kind == "Pod":
            self._pod(change, change.after)

    def _pod(self, change: Change, pod: Object | None) -> None:
        if pod is None:
            self._node.pop(change.uid, None)
            return
        node, before = node_name_of(pod), self._node.get(change.uid, "")
        if before and node != before:
            self.violated(f"{named(pod)} was on {before} and is on {node or 'no node'} now")
        if node:
            self._node[change.uid] = node
        sender = annotations_of(pod).get(LEADER)
        if newly_bound(change.previous, pod) and sender not in (None, annotations_of(change.previous).get(LEADER)):
            self._sent(change.at, pod, str(sender))

    def _sent(self, at: float, pod: Object, sender: str) -> None:
        seen = self._seen(at - self.lag)
        if self.fenced and None not in seen and sender not in seen:
            self.violated(f"{sender} has bound {named(pod)}, and {' or '.join(filter(None, seen)) or 'nobody'} leads")
        until = max((end for holder, end in self._terms(at) if holder == sender), default=None)
        if until is None:
            self.violated(f"{sender} has bound {named(pod)} and never held the Lease")
        elif at - until > self.latest:
            self.violated(f"{sender} has bound {named(pod)} {at - until:.1f} s after it lost the Lease")

    def _seen(self, first: float) -> list[str | None]:
        """Return the holders from a moment on; None where there is no Lease."""
        starts = [at for at, _ in self._holders[1:]] + [float("inf")]
        return [holder for (_, holder), until in zip(self._holders, starts, strict=True) if until >= first]

    def _terms(self, now: float) -> list[tuple[str | None, float]]:
        """Return each holder so far, and until when it was the holder."""
        ends = [at for at, _ in self._holders[1:]] + [now]
        return [(holder, end) for (_, holder), end in zip(self._holders, ends, strict=True)]
