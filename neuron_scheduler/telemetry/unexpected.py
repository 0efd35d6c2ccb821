"""
An unexpected exception in the work on one pod is that pod's error; it does not end the process.

Upstream: `utilruntime.HandleError`. Each is counted; the first of its kind for a pod is logged with its traceback.
"""

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import attrs

from neuron_scheduler.telemetry import logs

MOST_SHOWN: Final = 300  # characters of an exception's text, which may quote an object

log = logs.logger(__name__)


def report_in_callback(loop: AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Report an exception in a callback of the loop: in one line if it is a connection's, which is opened again."""
    if "transport" in context:
        log.warning("A connection broke off", exc=context.get("exception"), reason=context["message"])
    else:
        loop.default_exception_handler({**context})


@attrs.define(eq=False)
class UnexpectedErrors:
    """Reports exceptions; `on_report` is called with the task of each (`neuron_scheduler_unexpected_errors_total`)."""

    on_report: Callable[[str], None]
    _first: logs.Once = attrs.field(factory=logs.Once, init=False)

    @contextmanager
    def contain(self, *, task: str, pod: str) -> Iterator[None]:
        """Report an exception inside the block, after which the others go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - it is an error of this block alone
            self.report(error, task=task, pod=pod)

    def report(self, error: Exception, *, task: str, pod: str) -> str:
        """Count and log an exception in a task for a pod, and return the message for the pod's owner."""
        self.on_report(task)
        if self._first((pod, task, type(error))):
            log.error("Unexpected error, please report it", exc=error, traceback=True, task=task, pod=pod)
        return f"unexpected error in {task}: {type(error).__name__}: {str(error)[:MOST_SHOWN]}"
