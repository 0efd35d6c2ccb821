"""Mutants of the queue: which event lets a refused pod be tried again."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="a-nomination-is-not-looked-at-again",
        away="the look at a node's nominations when the node or its pods have changed",
        danger="space is kept for a pod that the node would refuse, and its owner and others sleep on",
        edits=(
            Edit(
                "controllers.preemption_executor",
                """
                if node_info is None or not node_info.nominations:
                    return
                """,
                """
                if node_info is not None:
                    return
                """,
            ),
        ),
        where=(r"priority urgent", r"create on n\d pod|another scheduler binds|taint|cordon"),
    ),
    Mutant(
        name="a-hint-that-says-never",
        away="the hints of the plugins: none expects that a change helps",
        danger="a pod that fits sleeps until the next flush",
        edits=(
            Edit(
                "scheduling.queue.events",
                """
                return WakeUp(event, group, takers) if takers else None
                """,
                """
                return None
                """,
            ),
        ),
    ),
    Mutant(
        name="nobody-hears-that-a-pod-has-gone",
        away="the event of a pod that has left its node",
        danger="pods that fit now sleep on",
        edits=(
            Edit(
                "controllers.handlers.pods",
                """
                if name is not None or nominated_node is not None:
                    self._note(ClusterEvent.ASSIGNED_POD_GONE, old)
                """,
                "",
            ),
        ),
    ),
    Mutant(
        name="nobody-hears-of-a-new-node",
        away="the event of a new node",
        danger="pods that fit there sleep on",
        edits=(
            Edit(
                "controllers.handlers.nodes",
                """
                self._note(new, (ClusterEvent.NODE_ADDED,))
                """,
                "",
            ),
        ),
        where=(r"create node",),
    ),
    Mutant(
        name="nobody-hears-that-a-binding-failed",
        away="the event that an assumed pod does not take its space after all",
        danger="pods that were refused meanwhile sleep on",
        edits=(
            Edit(
                "controllers.binding_cycle",
                """
                        self.queue.note(event.event, claim=event.claim)
                note_freed(self.cluster, self.queue, commitment.pod, commitment.decision.node_name)
                """,
                """
                        self.queue.note(event.event, claim=event.claim)
                """,
            ),
        ),
        where=(r"too large",),
    ),
    Mutant(
        name="only-the-first-of-a-line",
        away="the next pod of a line, when the first has got its node",
        danger="the others of the line sleep although they fit",
        edits=(
            Edit(
                "scheduling.queue.scheduling_queue",
                """
                if self._unschedulable.to_go_on:
                    self._unschedulable.go_on(now)
                """,
                "",
            ),
            Edit(
                "scheduling.queue.scheduling_queue",
                "self._unschedulable.to_go_on or self._places.counts[Place.ACTIVE]",
                "self._places.counts[Place.ACTIVE]",
            ),
        ),
    ),
    Mutant(
        name="gates-open-unnoticed",
        away="the arrival of a pod whose last scheduling gate is removed",
        danger="it waits for ever",
        edits=(
            Edit(
                "scheduling.queue.scheduling_queue",
                """
                self._let_in(queued, now, "SchedulingGatesEliminated")
                """,
                """
                pass
                """,
            ),
        ),
        where=(r"open the gate",),
    ),
    Mutant(
        name="a-queue-backoff-without-an-end",
        away="the longest backoff of a pod",
        danger="after a bad minute a pod waits for many more",
        edits=(
            Edit(
                "scheduling.queue.places",
                """
                return math.ceil(queued.since + min(self.longest, self.initial * (1 << min(in_a_row - 1, 62))))
                """,
                """
                return math.ceil(queued.since + self.initial * (1 << min(4 * in_a_row, 62)))
                """,
            ),
        ),
        where=(r"server refuses 403 rights.*bindings",),
    ),
    Mutant(
        name="a-bound-pod-stays-in-the-queue",
        away="the end of a pod's wait when it is seen on a node",
        danger="it is decided once more, and the queue grows",
        edits=(
            Edit(
                "controllers.handlers.pods",
                """
                def _bound(self, pod: Pod) -> None:
                    self.queue.remove(pod.uid)
                """,
                """
                def _bound(self, pod: Pod) -> None:
                """,
            ),
        ),
    ),
    Mutant(
        name="a-sleeping-loop",
        away="what wakes the idle loop, and the limit of its sleep",
        danger="a new pod waits until something else happens",
        edits=(
            Edit(
                "controllers.scheduling_loop",
                """
                timeout = _LONGEST_IDLE if upcoming is None else max(0.0, upcoming - now)
                with anyio.move_on_after(min(timeout, _LONGEST_IDLE)):
                """,
                """
                timeout = 50.0 if upcoming is None else max(0.0, upcoming - now)
                with anyio.move_on_after(timeout):
                """,
            ),
            Edit(
                "controllers.scheduling_loop",
                '''
                """Make an idle loop look at the queue again."""
                self._wake.set()
                ''',
                '''
                """Make an idle loop look at the queue again."""
                ''',
            ),
        ),
    ),
)
