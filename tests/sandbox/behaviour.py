"""
Every behaviour that the sandbox shares with a real API server, by its sentence.

Each is an async function of an `Api`: a client with a namespace of its own. The same table runs against both. A failure
on the real one is a bug of the table, a failure on the sandbox a bug of the sandbox.
"""

from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from types import ModuleType
from typing import TypeAlias

from tests.sandbox import (
    behaviour_reads,
    behaviour_scheduling,
    behaviour_workloads,
    behaviour_writes,
)
from tests.support.sandbox_api import Api

Behaviour: TypeAlias = Callable[[Api], Awaitable[None]]


def _sentence(name: str) -> str:
    return name.replace("_", " ")


def _of(*modules: ModuleType) -> dict[str, Behaviour]:
    return {
        _sentence(name): function
        for module in modules
        for name, function in vars(module).items()
        if iscoroutinefunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
    }


BEHAVIOURS: Mapping[str, Behaviour] = _of(behaviour_reads, behaviour_writes, behaviour_scheduling)

OF_CONTROLLERS: Mapping[str, Behaviour] = _of(behaviour_workloads)
"""Those that need controllers."""

EXPIRED = _sentence(behaviour_reads.a_version_that_is_too_old_is_refused.__name__)
"""The one behaviour that a server shows only when its history is too short."""

CLEARED = _sentence(behaviour_scheduling.a_binding_ends_the_nomination.__name__)
"""What API servers before 1.35 do not do (the feature gate ClearingNominatedNodeNameAfterBinding is off there)."""
