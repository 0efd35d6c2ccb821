"""Mutants of groups: when members are let in, that they are placed as a whole, and that the rest of one is not lost."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

_GROUP: Final = r"group \w of \d"
_REFUSED: Final = r"server refuses (403|500|429).*bindings"
_QUEUE: Final = "scheduling.queue.group_waits"
_PLAN: Final = "scheduling.groups.plan"
_LOOP: Final = "controllers.scheduling_loop"

MUTANTS: Final = (
    Mutant(
        name="a-group-is-let-in-below-its-count",
        away="the wait for as many members as a group needs",
        danger="a member is bound although too few exist",
        edits=(Edit(_QUEUE, "waiting.held = group.awaits and", "waiting.held = False and"),),
        where=(_GROUP,),
    ),
    Mutant(
        name="terminating-members-count",
        away="that pods which are being deleted are no members",
        danger="the first pod of a restarted job is bound while those of the job before end",
        edits=(Edit("cluster.tables.groups", "group is not None and not pod.terminating:", "group is not None:"),),
        where=(_GROUP, r"create pod default/\w\db"),
    ),
    Mutant(
        name="gated-members-count",
        away="that pods with scheduling gates are no members yet",
        danger="the first pod whose gate is lifted is bound alone",
        edits=(Edit("kube.objects.pods", "if refusal or common.gates  # a member", "if refusal  # a member"),),
        where=(_GROUP, r"gated, .*group"),
    ),
    Mutant(
        name="a-group-is-placed-in-part",
        away="that nothing is assumed if too few members fit at once",
        danger="some members are bound, and the others wait like single pods",
        edits=(Edit(_PLAN, "needed = max(self.gang.missing, 1)", "needed = 1"),),
        where=(_GROUP,),
    ),
    Mutant(
        name="a-refused-trial-leaves-a-trace",
        away="the end of the assumptions of a trial in which too few members fit",
        danger="space is taken for nobody",
        edits=(
            Edit(
                _PLAN,
                """
                yield from _undone(self.trial, 0)
                return Refused(fitting_at_once, reason)
                """,
                """
                return Refused(fitting_at_once, reason)
                """,
            ),
        ),
        where=(_GROUP,),
    ),
    Mutant(
        name="a-refused-group-sleeps",
        away="that any event wakes a group that was refused",
        danger="it waits although its members fit now",
        edits=(
            Edit(
                "scheduling.queue.events",
                "if not group.plugins or pods_may_help(event, pods, concerned, group.interest):",
                "if group.plugins and pods_may_help(event, pods, concerned, group.interest):",
            ),
        ),
        where=(_GROUP,),
    ),
    Mutant(
        name="the-space-of-a-refused-member-is-lost",
        away="the nomination of a member whose Binding is refused while others of its group are bound",
        danger="a single pod gets its space, and the group stays half bound",
        edits=(
            Edit(_LOOP, "cluster.nominate(commitment.node_name, Nomination(pod, commitment.decision.cores))", "pass"),
        ),
        where=(_GROUP, _REFUSED),
    ),
    Mutant(
        name="a-group-that-has-fallen-apart-is-bound",
        away="the look at its group before a Binding that had to wait is sent",
        danger="one member is bound when the others are gone",
        edits=(Edit(_LOOP, "return Fenced() if is_held else None", "return None"),),
        where=(_GROUP, r"kubelet slow 25 s"),
    ),
    Mutant(
        name="members-beyond-the-count-come-first",
        away="that a group is first in the queue only while fewer than its count are bound",
        danger="its later members pass older pods over",
        edits=(
            Edit(_QUEUE, "0 < self.groups.placed(key) < group.size <= waiting.count", "0 < self.groups.placed(key)"),
        ),
        where=(_GROUP, r"g-later"),
    ),
    Mutant(
        name="each-departure-prolongs-the-pause",
        away="the end of the wait for news of an inferred group from which members go",
        danger="a member waits beside free machines as long as others go",
        edits=(Edit(_QUEUE, "waiting.count < count and waiting.tried <= now and", "waiting.count < count and"),),
        where=(_GROUP, r"g-late\b"),
    ),
    Mutant(
        name="the-smallest-count-holds",
        away="that of counts that differ the largest holds",
        danger="a member is bound although another one says that too few exist",
        edits=(
            Edit(
                "cluster.tables.groups",
                "max(declared.least, *(group.least for group in members.said))",
                "min(group.least for group in members.said)",
            ),
        ),
        where=(r"group g of 2", r"group g of 4"),
    ),
)
