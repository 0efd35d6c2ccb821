"""
The lines of the journal: JSON objects, whose first field says what they are.

    {"record": "Started", ...}   the first line of each file: version, profiles
    {"record": "PutNode", ...}   a change of the cluster; the first ones of a file make the cluster what it was then
    {"record": "Decided", ...}   a decision: the pod, and the outcome
    {"record": "Lost", ...}      lines were dropped; the cluster begins again with the next file

Fields with their default value are left out. Does not read a line of another format version.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final, cast, get_args

import attrs
from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError
from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.preconf.json import make_converter
from cattrs.strategies import configure_tagged_union

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.errors import ConfigurationError
from neuron_scheduler.journal.changes import Change
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import Attachable, HeldVolume, InlineVolume, Storage
from neuron_scheduler.scheduling.cycle.profile import Profile, default_profile
from neuron_scheduler.scheduling.plugins.registry import PREFERENCES

FORMAT: Final = 1


@attrs.frozen
class RecordedProfile:
    """The settings from which a profile follows, as `default_profile` takes them."""

    scheduler_name: str
    preferences: tuple[str, ...]
    count_unknown_only: bool = False

    @property
    def profile(self) -> Profile:
        """The profile; preferences that this version does not have are left out."""
        known = [name for name in self.preferences if name in PREFERENCES]
        return default_profile(self.scheduler_name, count_unknown_only=self.count_unknown_only, preferences=known)


@attrs.frozen
class Started:
    """
    The head of a file.

    Attributes:
        at: seconds since the epoch.
        version: of the program.
    """

    at: float
    version: str
    profiles: tuple[RecordedProfile, ...]
    format: int = FORMAT


@attrs.frozen
class Decided:
    """
    A decision, and what it was about.

    Attributes:
        at: seconds since the epoch.
        node_name, ids: empty if no node took the pod.
        feasible: how many nodes the pod fitted on.
        nodes: how many nodes there were.
        reasons: of a refusal: how many nodes for each reason.
    """

    at: float
    pod: Pod
    node_name: str = ""
    ids: tuple[int, ...] = ()
    feasible: int = 0
    nodes: int = 0
    cause: str = ""
    reasons: tuple[tuple[str, int], ...] = ()


@attrs.frozen
class At:
    """
    The time of the changes that follow.

    Attributes:
        at: seconds since the epoch.
    """

    at: float


@attrs.frozen
class Lost:
    """So many lines were dropped: what follows in this file does not fit what was before."""

    lines: int


Record = Started | Decided | At | Lost | Change


_BAD: Final = (
    *(ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError),
    *(BaseValidationError, StructureHandlerNotFoundError),
)
"""What cattrs and the values raise for a line that some other program wrote."""


class UnreadableLineError(ConfigurationError):
    """A line is not of this journal's format."""


def _make() -> tuple[Callable[[Record], Any], Callable[[Any], Record]]:
    converter = make_converter(omit_if_default=True, forbid_extra_keys=True)
    configure_tagged_union(Storage, converter, tag_name="kind")
    disks = Attachable | InlineVolume
    configure_tagged_union(disks, converter, tag_name="kind")
    converter.register_unstructure_hook(
        HeldVolume,
        lambda held: held if isinstance(held, str) else converter.unstructure(held, unstructure_as=disks),
    )
    converter.register_structure_hook(
        HeldVolume, lambda held, _: held if isinstance(held, str) else converter.structure(held, cast(Any, disks))
    )
    # An earlier version refuses a field that it does not know, and nobody reads this one.
    unrecorded = override(omit=True)
    converter.register_unstructure_hook(
        Nomination,
        make_dict_unstructure_fn(Nomination, converter, _cattrs_omit_if_default=True, count_unknown_only=unrecorded),
    )
    configure_tagged_union(Record, converter, tag_name="record")
    return (
        lambda record: converter.unstructure(record, unstructure_as=Record),
        lambda value: cast(Record, converter.structure(value, cast(Any, Record))),
    )


_unstructured, _structured = _make()
KINDS: Final = tuple(kind.__name__ for kind in get_args(Record))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no time")
    return value


def line_of(record: Record) -> bytes:
    """Return a record as a line, with its end."""
    value = _unstructured(record)
    tag = value.pop("record")
    return json.dumps({"record": tag, **value}, separators=(",", ":")).encode() + b"\n"


def record_of(line: bytes) -> Record:
    """
    Return the record in a line.

    Raises:
        UnreadableLineError: there is none.
    """
    try:
        value = json.loads(line, parse_constant=_finite, parse_float=_finite)
        if isinstance(value, dict) and value.get("record") == "Started" and value.get("format", FORMAT) != FORMAT:
            raise UnreadableLineError(
                f"its format is {value['format']!r}, and this version reads {FORMAT}; use the version that wrote it"
            )
        return _structured(value)
    except _BAD as error:
        raise UnreadableLineError("it is no record of the journal") from error
