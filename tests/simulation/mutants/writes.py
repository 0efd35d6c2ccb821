"""Mutants of the other writes: conditions, Events, deletions of victims, volumes."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="others-conditions-are-lost",
        away="the merge by type: the patch replaces all conditions of a pod",
        danger="conditions of other writers are lost",
        edits=(
            Edit(
                "kube.writes.condition_writer",
                "content_type=STRATEGIC_MERGE_PATCH",
                'content_type="application/merge-patch+json"',
            ),
        ),
        where=(r"add condition",),
    ),
    Mutant(
        name="a-late-condition",
        away="the pod's version in the patch of its condition",
        danger="a patch that is delivered late says of a bound pod that it is not scheduled",
        edits=(
            Edit(
                "kube.writes.condition_writer",
                """
                metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version}
                """,
                """
                metadata = {"uid": pod.uid}
                """,
            ),
        ),
        where=(r"(sent again later|request late|sent twice).*(statuses|any)",),
    ),
    Mutant(
        name="a-condition-for-a-bound-pod",
        away="that a pod which is on a node is told nothing: after a conflict its new version is used",
        danger="the patch says of a pod that another scheduler has bound that it is not scheduled",
        edits=(
            Edit(
                "kube.writes.condition_writer",
                """
                if pod.uid != entry.pod.uid or pod.node_name:
                """,
                """
                if pod.uid != entry.pod.uid:
                """,
            ),
        ),
        where=(r"another scheduler binds",),
    ),
    Mutant(
        name="conditions-hold-their-writers",
        away="the requeue of a condition that could not be written: its writer tries until it succeeds",
        danger="autoscalers see nothing of the other pods",
        edits=(
            Edit(
                "kube.writes.condition_writer",
                """
                await self._send(entry, wanted)
                """,
                """
                await self._send(entry, wanted)
                while entry.wanted is wanted and self._is_current(entry):
                    await anyio.sleep(max(0.0, entry.not_before - self.clock()))
                    await self._send(entry, wanted)
                """,
            ),
        ),
        where=(r"(server|proxy|request|answer).*statuses",),
    ),
    Mutant(
        name="a-refused-condition-is-given-up",
        away="the second try of a condition that was refused with 403",
        danger="rights or a webhook have changed since, and autoscalers never learn that the pod waits",
        edits=(
            Edit(
                "kube.writes.condition_writer",
                'error.gone("pods", pod.name)',
                "error.status in (403, 404)",
            ),
        ),
        where=(r"server refuses 403.*statuses",),
    ),
    Mutant(
        name="any-pod-of-that-name-is-evicted",
        away="the uid of a victim in its deletion, and the look whether it is still there",
        danger="another pod of the same name is deleted",
        edits=(
            Edit("kube.writes.evictor", ', "preconditions": {"uid": victim.uid}', ""),
            Edit("kube.writes.evictor", '{"metadata": {"uid": victim.uid}, "status"', '{"metadata": {}, "status"'),
            Edit(
                "controllers.preemption_executor",
                "return self.cluster.node_of(victim.uid) == node_name and not self._is_leaving(victim)",
                "return True",
            ),
        ),
        where=(
            r"create again",
            r"deletes|statuses",
        ),
    ),
    Mutant(
        name="victims-without-a-permit",
        away="the question whether we still hold the Lease before a victim is deleted",
        danger="a replica that has lost the Lease deletes pods",
        edits=(
            Edit(
                "kube.writes.evictor",
                "permit=lambda: eviction.permits() and self.may_send()",
                "permit=eviction.permits",
            ),
        ),
        where=(
            r"urgent|high",
            r"takes the Lease|stopped|lease",
        ),
    ),
    Mutant(
        name="a-task-for-each-victim",
        away="the limit on evictions at once",
        danger="as many tasks as there are victims",
        edits=(
            Edit(
                "controllers.preemption_executor",
                """
                self._victims.add(victim, pod.namespace, self.clock())
                """,
                """
                self._rounds.start_soon(self._evict, victim)
                """,
            ),
        ),
        where=(r"low159",),
    ),
)
