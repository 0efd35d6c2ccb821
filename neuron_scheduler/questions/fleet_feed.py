"""
`/v1/fleet`: all machines, for readers that ask again and again.

The picture is made at most once a second for all readers together, and only if something has changed; its JSON is kept
for the readers that see the same names. A reader that has it already gets 304.
"""

from collections.abc import Callable
from typing import Final

import anyio
import attrs

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.explain.answers.fleet import Fleet
from neuron_scheduler.explain.fleet import fleet, without_names
from neuron_scheduler.questions.encoding import accepts_gzip, answered, has_it, packed, pieces_of, tag, unchanged
from neuron_scheduler.questions.lane import last
from neuron_scheduler.questions.readers import MOST_NAMESPACES, Names, Reader

AGE: Final = 1.0
"""Seconds for which a picture is shown although something has changed."""
MOST_KEPT: Final = 4
"""Answers that are kept: megabytes each in a large fleet, a tenth of that compressed."""

NO_NAMES: Final = "The names of pods are left out. A token adds the names of those pods that its user may get."
SOME_NAMES: Final = "Names of pods are left out: you may not get the pods of {count} of these namespaces."
UNASKED: Final = (
    "Names of pods in {count} more namespaces are left out: one question looks up your rights in"
    f" {MOST_NAMESPACES} namespaces."
)


@attrs.frozen(eq=False)
class _Picture:
    """
    The fleet as it was.

    Attributes:
        version: of the cluster.
        made: on the monotonic clock.
        namespaces: of all pods in it.
    """

    version: int
    made: float
    fleet: Fleet
    namespaces: frozenset[str]


@attrs.define(eq=False, kw_only=True)
class FleetFeed:
    """
    Answers `/v1/fleet`.

    Attributes:
        clock: seconds, monotonic.
        instance: an id of this process, so that another one's ETag is not ours.
        notes: what a reader has to know of this process: one sentence each.
    """

    cluster: Cluster
    clock: Callable[[], float]
    instance: str
    notes: Callable[[], tuple[str, ...]]
    count_unknown_only: bool = False
    _picture: _Picture | None = attrs.field(default=None, init=False)
    _kept: dict[tuple[str, bool], tuple[bytes, ...]] = attrs.field(factory=dict, init=False)
    _making: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    async def answer(self, request: Request, reader: Reader, gone: Callable[[], bool]) -> Reply:
        """Return the fleet as a reader may see it."""
        picture = await self._current(gone)
        names = await reader.names(picture.namespaces)
        notes = (*self.notes(), *name_notes(reader, names))
        etag = tag(self.instance, picture.version, picture.made, _shown(names), notes)
        if has_it(request, etag):
            return unchanged(etag)
        gzip = accepts_gzip(request)
        pieces = self._kept.pop((etag, gzip), None)
        if pieces is None:
            machines = (without_names(machine, names) for machine in picture.fleet.machines)
            shown_fleet = Fleet(machines, picture.fleet.types, notes)  # type: ignore[arg-type]  # made piece by piece
            pieces = await last(packed(pieces_of(shown_fleet), gzip=gzip), gone)
        self._kept[etag, gzip] = pieces
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return answered(pieces, etag=etag, gzip=gzip)

    async def _current(self, gone: Callable[[], bool]) -> _Picture:
        """Return a picture that is new enough."""
        async with self._making:  # a second reader waits for the picture that the first one makes
            picture, version = self._picture, self.cluster.view.changes
            if picture is not None and (picture.version == version or self.clock() < picture.made + AGE):
                return picture
            answer = await last(fleet(self.cluster, count_unknown_only=self.count_unknown_only), gone)
            namespaces = frozenset(holder.namespace for machine in answer.machines for holder in machine.holders)
            self._picture = _Picture(version, self.clock(), answer, namespaces)
            return self._picture


def _shown(names: Names) -> object:
    """Return what tells apart which names are shown, for an ETag."""
    return None if names.shown is None else sorted(names.shown)


def name_notes(reader: Reader, names: Names) -> tuple[str, ...]:
    """Return what a reader has to know about names that are left out."""
    if reader.user is None:
        return (NO_NAMES,)
    notes = [SOME_NAMES.format(count=names.hidden)] if names.hidden else []
    return (*notes, UNASKED.format(count=names.unasked)) if names.unasked else tuple(notes)
