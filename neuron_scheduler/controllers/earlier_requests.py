"""
Finds what an earlier leader asks an autoscaler for with objects that no watch shows.

A leader asks for nothing before it knows that: it would ask for the same machines once more. So it waits for an API
server that does not answer, and says so. A leader whose profiles ask for nothing any more looks as well, because an
autoscaler goes on buying for what is left. Does not decide what becomes of the objects (`machine_requests`).
"""

import random as randomness
from collections.abc import Callable, Container, Sequence
from typing import Final

import anyio
import attrs

from neuron_scheduler.errors import ApiError, UnreachableError
from neuron_scheduler.kube.http.backoff import Backoff
from neuron_scheduler.kube.writes.machine_order import NAMESPACE, Orders
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.telemetry import logs

UNANSWERED: Final = (
    "Cannot list what an earlier leader asks an autoscaler for, trying again; no machine is asked for before"
)
ANSWERED: Final = "The API server answers again what an earlier leader asks an autoscaler for"

log = logs.logger(__name__)


@attrs.define(eq=False, kw_only=True)
class EarlierRequests:
    """
    Lists the objects of each form.

    Attributes:
        in_use: forms in which machines are asked for.
        others: forms in which an earlier leader may have asked, with other settings.
        namespaces: of the cluster; without ours there is nothing to find, and perhaps no right to look.
        clock: seconds that never jump.
        random: numbers from [0, 1), for the pauses between two tries.
    """

    in_use: Sequence[Orders]
    others: Sequence[Orders] = ()
    namespaces: Container[str]
    clock: Callable[[], float]
    random: Callable[[], float] = randomness.random
    _trouble: logs.Trouble = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._trouble = logs.Trouble(log, ANSWERED, self.clock)

    async def found(self) -> list[tuple[Pod, Orders]]:
        """Return what asks, as pods, with the form of each; wait for a server that fails."""
        if not self.in_use and NAMESPACE not in self.namespaces:
            return []
        wanted = {id(form) for form in self.in_use}
        forms = {id(form): form for form in (*self.in_use, *self.others)}
        found: list[tuple[Pod, Orders]] = []
        for form in forms.values():
            found += [(pod, form) for pod in await self._found_by(form, wanted=id(form) in wanted)]
        return found

    async def _found_by(self, form: Orders, *, wanted: bool) -> list[Pod]:
        """Return the objects of a form; none if this process has no right to list them."""
        backoff = Backoff(self.random)
        while True:
            try:
                found = await form.found()
            except ApiError as error:
                if error.refused and error.status != 401:
                    if wanted:
                        log.warning("Cannot list what an earlier leader asks an autoscaler for", exc=error)
                    return []
                self._trouble.met(UNANSWERED, error, kind=error.status)
                pause = backoff.next(at_least=error.retry_after)
            except UnreachableError as error:
                self._trouble.met(UNANSWERED, error)
                pause = backoff.next()
            else:
                self._trouble.over()
                return found
            await anyio.sleep(pause)
