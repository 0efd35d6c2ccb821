"""
Whom we delete can read why: the condition DisruptionTarget is written first, to this very pod.

So a pod that was created again under the name of a victim is not deleted in its place: nobody has written the condition
to it. Left out are pods that are too large for the condition.
"""

from tests.simulation.oracles.change import Change, Object, Oracle, metadata_of, named


class Evictions(Oracle):
    """Looks at the pods that a replica asks to end."""

    def changed(self, change: Change) -> None:
        """Judge a deletion by a replica."""
        if change.kind != "Pod" or not change.author or change.previous is None or _terminating(change.previous):
            return
        if (change.after is None or _terminating(change.after)) and not _told_why(change.previous):
            self.violated(f"{change.author} has deleted pod {named(change.object)}, whose status does not say why")


def _terminating(pod: Object) -> bool:
    return bool(metadata_of(pod).get("deletionTimestamp"))


def _told_why(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "DisruptionTarget" for condition in conditions)
