"""Mutants of the Lease: who leads, for how long, what a new leader reads first, and what a leader leaves behind."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="no-list-after-the-takeover",
        away="the list of the pods after the Lease was taken",
        danger="the last Bindings of the previous leader are not known yet: their devices are given away again",
        edits=(
            Edit(
                "app",
                """
                await parts.pods.resync()  # the first decision needs the last Bindings of the previous leader
                """,
                "",
            ),
        ),
        where=(
            r"killed|stopped|terminated",
            r"cache late|watch (silent|late)",
            r"without the fence",
        ),
    ),
    Mutant(
        name="listed-before-it-leads",
        away="the order at the start: pods are listed, then the Lease is taken, and a free Lease needs no second list",
        danger="what another leader bound between the two is not known",
        edits=(
            Edit(
                "app",
                """
                leads_at_once = await self._become_candidate(services)
                services.start_soon(parts.pods.run)
                await parts.pods.synced.wait()
                """,
                """
                services.start_soon(parts.pods.run)
                await parts.pods.synced.wait()
                leads_at_once = await self._become_candidate(services)
                """,
            ),
        ),
        where=(
            r"answer late.*lists",
            r"request late.*bindings",
        ),
    ),
    Mutant(
        name="an-older-list-answers",
        away="the requests' numbers, and the end of a list under way: one that began before the takeover counts",
        danger="the last Bindings of the previous leader are not known yet",
        edits=(
            Edit(
                "kube.watch.informer",
                """
                self._resynced = answered
                """,
                """
                self._resynced = self._resyncs
                """,
            ),
            Edit(
                "kube.watch.informer",
                """
                number = self._resyncs
                if self._scope is not None:
                """,
                """
                number = self._resyncs
                if self._scope is not None and self._opened_at is not None:
                """,
            ),
        ),
        where=(
            r"killed|terminated",
            r"answer late.*lists[\s\S]*watch late.*pods",
        ),
    ),
    Mutant(
        name="an-old-list-is-trusted",
        away="the consistent read: lists ask for any version (resourceVersion=0)",
        danger="an API server that lags hides the last Bindings of the previous leader",
        edits=(
            Edit("kube.watch.informer", '"limit": str(limit), **(', '"limit": str(limit), "resourceVersion": "0", **('),
        ),
        where=(
            r"cache late",
            r"killed|terminated|stopped",
        ),
    ),
    Mutant(
        name="released-in-doubt",
        away="that the Lease expires when a Binding is in doubt",
        danger="the successor decides before the Binding is committed",
        edits=(Edit("app", "await election.leave(release=binder.resolved)", "await election.leave(release=True)"),),
        where=(
            r"terminated",
            r"without the fence",
            r"request late.*bindings",
        ),
    ),
    Mutant(
        name="counted-from-the-answer",
        away="that the deadline counts from when a renewal was sent",
        danger="after a slow answer two replicas may bind at the same time",
        edits=(
            Edit(
                "controllers.leader_elector",
                """
                self._record, self._renewed_at = record, sent_at

                """,
                """
                self._record, self._renewed_at = record, self.clock()

                """,
            ),
        ),
        where=(
            r"Lease 11, 10",
            r"answer late.*lease",
        ),
    ),
    Mutant(
        name="a-leader-without-a-deadline",
        away="the deadline after which a leader that could not renew binds no more",
        danger="it binds although another replica has the Lease",
        edits=(
            Edit(
                "controllers.leader_elector",
                """
                return self._renewed_at is not None and self.clock() < self._renewed_at + self.renew_deadline
                """,
                """
                return self._renewed_at is not None
                """,
            ),
        ),
        where=(
            r"(request|answer|server|proxy|page).*lease",
            r"stopped",
        ),
    ),
    Mutant(
        name="it-leads-on",
        away="the end of a leader that has lost the Lease",
        danger="two replicas schedule",
        edits=(
            Edit(
                "controllers.leader_elector",
                """
                except LeaseLostError:
                    self._renewed_at = None
                    raise
                """,
                """
                except LeaseLostError:
                    self._renewed_at = math.inf
                    await anyio.sleep_forever()
                """,
            ),
        ),
        where=(
            r"takes the Lease|delete the Lease",
            r"without the fence",
            r"stopped",
        ),
    ),
    Mutant(
        name="the-holders-clock-counts",
        away="that a Lease's time counts from when we saw it change: its renewTime is compared with our clock",
        danger="a replica whose clock is ahead takes the Lease of a leader that is alive",
        edits=(
            Edit(
                "controllers.leader_elector",
                """
                return self._changed_at + self._record.duration - self.clock()
                """,
                """
                renewed = self._record.renewed
                written = 0.0 if renewed is None else renewed.timestamp()
                return written + self._record.duration - time.time()
                """,
            ),
            Edit(
                "controllers.leader_elector",
                """
                from collections.abc import Callable
                """,
                """
                import time
                from collections.abc import Callable
                """,
            ),
        ),
        where=(r"wrong clock",),
    ),
    Mutant(
        name="taken-without-a-version",
        away="the version in a write of the Lease",
        danger="two candidates take it, one after the other, and both believe to hold it",
        edits=(
            Edit(
                "kube.writes.lease",
                """
                if record.resource_version:
                """,
                """
                if not record:
                """,
            ),
        ),
    ),
    Mutant(
        name="a-loop-that-ends-unnoticed",
        away="the patience of the loop while a renewal is late, and the exit of a process whose loop has ended",
        danger="it leads, renews, answers its probes, and schedules nothing",
        edits=(
            Edit(
                "controllers.scheduling_loop",
                """
                    continue
                now = self.looked_at = self.clock()
                """,
                """
                    break
                now = self.looked_at = self.clock()
                """,
            ),
            Edit(
                "app",
                """
                await parts.scheduling_loop.run()
                """,
                """
                await parts.scheduling_loop.run()
                if not self._stopping:
                    await anyio.sleep_forever()
                """,
            ),
            Edit(
                "controllers.leader_elector",
                """
                if self._leads_since is None or self.stopping():
                """,
                """
                if self._leads_since is None or self.stopping() or self.loop.looked_at is not None:
                """,
            ),
        ),
        where=(
            r"request lost.*lease",
            r"stopped",
        ),
    ),
)
