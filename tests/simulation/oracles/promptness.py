"""
Who comes and fits is bound at once, whatever groups wait, are refused or fall apart beside it.

A single pod, and a declared group that is complete, have a second; an inferred group waits up to three seconds more for
pods that may still come. Who was refused before has a backoff. It needs a scenario without faults, on machines that are
not slow; only time in which a pod has fitted without a break counts.
"""

from collections.abc import Set as AbstractSet
from typing import Final

import attrs

from tests.simulation.oracles.change import Change, Oracle
from tests.simulation.oracles.group_words import counts
from tests.simulation.oracles.liveness import Liveness

WITHIN: Final = 1.0
"""Seconds."""
PAUSE: Final = 3.0
"""Seconds for which an inferred group waits for more pods."""

LONGEST_BACKOFF: Final = 10.0
"""Seconds."""


@attrs.define(eq=False, kw_only=True)
class Promptness(Oracle):
    """
    Looks at the pods that have just come.

    Attributes:
        liveness: knows which pods fit.
    """

    liveness: Liveness
    _came: dict[str, float] = attrs.field(factory=dict)
    """By uid, when a pod could be bound first."""
    _fits_since: dict[str, float] = attrs.field(factory=dict)
    """By uid, since when a pod has fitted at each look."""
    _refused: set[str] = attrs.field(factory=set)
    """Pods that did not fit at a look, or whose Bindings had to wait."""
    _reported: set[str] = attrs.field(factory=set)

    def changed(self, change: Change) -> None:
        """Note when a pod comes, and when its gates are lifted."""
        if change.kind == "Pod" and change.after is not None and counts(change.after):
            self._came.setdefault(change.uid, change.at)

    def looked(self, now: float, *, leads: bool, decided: AbstractSet[str]) -> None:
        """Look at every pod that waits; those that are `decided` may have to wait for a kubelet."""
        since, self._fits_since = self._fits_since, {}
        for unit in self.liveness.units() if leads else ():
            uids = {pod.uid for pod in unit.waiting}
            if uids & decided or self.liveness.places_for(unit, at_once=True) is None:
                self._refused |= uids
                continue
            came = max(self._came[uid] for uid in uids)
            fits = max(came, *(since.get(uid, now if uid in self._refused else came) for uid in uids))
            self._fits_since |= dict.fromkeys(uids, fits)
            within = WITHIN + PAUSE * unit.inferred + LONGEST_BACKOFF * bool(uids & self._refused)
            if now - fits > within and not uids & self._reported:
                self._reported |= uids
                names = ", ".join(pod.key for pod in unit.waiting)
                self.violated(f"{names} has fitted for {now - fits:.1f} s, and waits")
