"""Mutants of the commit: what is sent, what counts as an answer, what becomes of a pod whose outcome is unknown."""

from typing import Final

from tests.simulation.mutants.mutant import Edit, Mutant

MUTANTS: Final = (
    Mutant(
        name="no-uid-in-the-binding",
        away="the uid in the Binding",
        danger="a repeat binds another pod of the same name, with ids that were chosen for the first",
        edits=(Edit("kube.writes.binder", '"name": pod.name, "uid": pod.uid, ', '"name": pod.name, '),),
        where=(
            r"delete by force and create again",
            r"(request late|sent again later|sent twice|answer lost|connection).*",
        ),
    ),
    Mutant(
        name="another-name-in-the-binding",
        away="the name of the Lease's holder in the Binding",
        danger="nobody can tell who has bound a pod, and the policy at the API server cannot refuse who leads no more",
        edits=(Edit("controllers.commitment", "OUR_LEADER: self.identity}", 'OUR_LEADER: f"{self.identity}-"}'),),
        where=(r"without the fence",),
    ),
    Mutant(
        name="release-on-timeout",
        away="the doubt after a timeout: no answer counts as a refusal",
        danger="the devices are given to another pod, and the Binding was committed all the same",
        edits=(
            Edit(
                "kube.writes.binder",
                """
                except UnreachableError as error:
                    return self._in_doubt(binding, error)
                except ApiError as error:
                """,
                """
                except UnreachableError as error:
                    return Refused(0, str(error), retryable=True)
                except ApiError as error:
                """,
            ),
        ),
        where=(
            r"(answer (lost|silent|late)|request late).*bindings",
            r"cache late|watch",
        ),
    ),
    Mutant(
        name="no-read-back",
        away="the GET after a 409 to a repeated Binding",
        danger="the conflict is with our own Binding: a bound pod loses its devices to another one",
        edits=(
            Edit(
                "kube.writes.binder",
                """
                return await self._read_back(binding, error)
                """,
                """
                return Refused(409, error.message, retryable=False)
                """,
            ),
        ),
        where=(
            r"(answer (lost|silent|late|cut|empty)|errs after|answers after|page after|sent twice).*bindings",
            r"cache late|watch (silent|late)",
        ),
    ),
    Mutant(
        name="deep-fields-cannot-be-read-back",
        away="the second look at an answer that is nested too deeply for the decoder",
        danger="the Binding of a pod with deep managedFields is in doubt for ever",
        edits=(
            Edit(
                "kube.objects.json_scanner",
                """
                return decoder.decode(_whole_characters(b"".join(parts)))
                """,
                """
                raise
                """,
            ),
        ),
        where=(
            r"deep fields",
            r"answer (lost|silent).*bindings",
        ),
    ),
    Mutant(
        name="another-body-on-the-repeat",
        away="the identical body of a repeated Binding: it gets a new NEURON_ALLOC_TIME",
        danger="the read-back does not recognise its own Binding",
        edits=(
            Edit(
                "controllers.binding_cycle",
                """
                self._conclude(commitment, await self.binder.again(binding))
                """,
                """
                self._conclude(commitment, await self._bind(commitment))
                """,
            ),
        ),
        where=(
            r"(answer (lost|silent|late|cut|empty)|server errs after|proxy answers after).*bindings",
            r"cache late|watch (silent|late)",
        ),
    ),
    Mutant(
        name="a-foreign-404-is-gone",
        away="the check that a 404 is the API server's, and about this pod",
        danger="a pod leaves the queue for ever although it exists",
        edits=(
            Edit(
                "kube.writes.binder",
                """
                if error.gone("pods", binding.pod.name, binding.pod.uid):
                    return Gone()
                if error.too_large and not binding.unknown:
                """,
                """
                if error.status == 404:
                    return Gone()
                if error.too_large and not binding.unknown:
                """,
            ),
        ),
        where=(r"proxy answers .*(bindings|any)",),
    ),
    Mutant(
        name="a-foreign-refusal-counts",
        away="the check that a refusal is a Status",
        danger="a proxy's 403 or 409 after the commit frees devices that a bound pod holds",
        edits=(
            Edit(
                "telemetry.errors",
                """
                return self.is_status and 400 <= self.status < 500 and self.status != 429
                """,
                """
                return 400 <= self.status < 500 and self.status != 429
                """,
            ),
        ),
        where=(
            r"proxy answers after 40[13].*bindings",
            r"cache late|watch",
        ),
    ),
    Mutant(
        name="doubts-hold-their-workers",
        away="the queue of doubts: a worker sends its Binding until it is answered",
        danger="pods that could be bound wait behind those that cannot",
        edits=(
            Edit(
                "controllers.binding_cycle",
                """
                            self._conclude(commitment, await self._bind(commitment) if found is None else found)

                async def _resolve(self, doubt: _Doubt) -> None:
                """,
                """
                            outcome = await self._bind(commitment)
                            while isinstance(outcome, InDoubt) and self.may_bind():
                                await anyio.sleep(outcome.pause)
                                outcome = await self.binder.again(outcome.binding)
                            self._conclude(commitment, outcome)

                async def _resolve(self, doubt: _Doubt) -> None:
                """,
            ),
        ),
        where=(r"(answer|request|server|proxy|page).*bindings",),
    ),
    Mutant(
        name="a-refused-pod-is-lost",
        away="the way of a refused pod back into the queue",
        danger="the pod is never tried again",
        edits=(
            Edit(
                "controllers.scheduling_loop",
                """
                    self._keep(commitment)
                    loop.queue.failed(self.queued, now)
                """,
                """
                    self._keep(commitment)
                """,
            ),
        ),
        where=(
            r"server refuses.*bindings",
            r"another scheduler binds",
        ),
    ),
    Mutant(
        name="a-fenced-pod-is-lost",
        away="the way back into the queue of a pod whose Binding was not sent",
        danger="the pod is never tried again",
        edits=(
            Edit(
                "controllers.scheduling_loop",
                """
                self._keep(commitment)
                self._loop.queue.failed(self.queued, self._loop.clock())
                """,
                """
                self._keep(commitment)
                """,
            ),
        ),
        where=(
            r"stopped|long step",
            r"connection",
            r"takes the Lease|delete the Lease",
        ),
    ),
    Mutant(
        name="a-binding-without-a-limit",
        away="the time limit of a Binding",
        danger="on a silent connection the pod waits for ever",
        edits=(Edit("kube.writes.binder", "                timeout=self.timeout,", "                timeout=1e6,"),),
        where=(
            r"(request|answer) silent.*bindings",
            r"connection silent",
        ),
    ),
)
