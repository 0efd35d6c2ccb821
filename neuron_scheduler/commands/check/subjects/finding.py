"""
One line of the report: how serious, what it is, and what to do.

The codes and severities are part of the JSON form, so scripts may depend on them: an old one keeps its meaning.
"""

import enum
from collections.abc import Iterable
from functools import partial
from typing import Final

import attrs


class Severity(enum.StrEnum):
    """How serious a finding is; the values are those of the JSON form."""

    OK = "ok"
    """Was checked, and is as it should be."""
    NOTE = "note"
    """Good to know; needs no action."""
    UNCHECKED = "not-checked"
    """Could not be read, so it may be right or wrong."""
    WARNING = "warning"
    """Works now or for some pods, and needs action."""
    ERROR = "error"
    """Pods are not scheduled, or get the wrong devices."""


NEEDS_ACTION: Final = frozenset({Severity.UNCHECKED, Severity.WARNING, Severity.ERROR})


@attrs.frozen
class Finding:
    """
    One line of the report.

    Attributes:
        code: in kebab case; says what was found, for scripts.
        message: for a person; one sentence without a full stop.
        advice: what to do, or what it means; a sentence without a full stop, or empty.
        command: a shell command that does it, or shows more; empty if there is none.
        objects: all that it is about, such as nodes or `namespace/pod`; a report may shorten the list.
    """

    code: str
    severity: Severity
    message: str
    advice: str = ""
    command: str = ""
    objects: tuple[str, ...] = ()


def _make_finding(severity: Severity, code: str, message: str, *, objects: Iterable[str] = (), **rest: str) -> Finding:
    return Finding(code, severity, message, objects=tuple(objects), **rest)


ok = partial(_make_finding, Severity.OK)
note = partial(_make_finding, Severity.NOTE)
unchecked = partial(_make_finding, Severity.UNCHECKED)
warning = partial(_make_finding, Severity.WARNING)
error = partial(_make_finding, Severity.ERROR)


def unknown(code: str, what: str, because: object, **rest: str) -> Finding:
    """Return the finding that something could not be read; `what` ends with its verb."""
    return unchecked(code, f"{what} not known: {because}", **rest)
