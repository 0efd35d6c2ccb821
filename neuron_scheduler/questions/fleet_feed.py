"""
`/v1/fleet`: all machines, for readers that ask again and again.

The picture is made at most once a second for all readers together, and only if something has changed; its JSON is kept
for the readers that see the same names. A reader that has it already gets 304.
"""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Final

import anyio
import attrs
import msgspec

from neuron_scheduler.answer_json import to_json
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.endpoints.exchange import Reply, Request
from neuron_scheduler.explain.answers.fleet import Fleet, TypeSummary
from neuron_scheduler.explain.fleet import Sums, ranked_machines
from neuron_scheduler.model.wording import counted
from neuron_scheduler.questions.encoding import accepts_gzip, answered, has_it, packed, pieces_of, tag, unchanged
from neuron_scheduler.questions.lane import Turn
from neuron_scheduler.questions.parameters import parameters
from neuron_scheduler.questions.readers import MOST_NAMESPACES, Names, Reader

AGE: Final = 1.0
"""Seconds for which a picture is shown although something has changed."""
MOST_KEPT: Final = 4
"""Answers that are kept: megabytes each in a large fleet, a tenth of that compressed."""

NO_NAMES: Final = "The names of pods are left out. A token adds the names of those pods that its user may get."
SOME_NAMES: Final = "The names of pods in {} are left out: you may not get the pods there."
UNASKED: Final = (
    f"The names of pods in {{}} more are left out: one question looks up your rights in {MOST_NAMESPACES} namespaces."
)


@attrs.frozen(eq=False)
class _Picture:
    """
    The fleet as it was.

    Machines are kept as JSON: thousands of values would take several milliseconds to be freed, in one step.

    Attributes:
        version: of the cluster.
        made: on the monotonic clock.
        machines: the worst first, with all names.
        namespaces: of all pods in them.
    """

    version: int
    made: float
    machines: tuple[bytes, ...]
    types: tuple[TypeSummary, ...]
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

    async def answer(self, request: Request, reader: Reader, turn: Turn) -> Reply:
        """Return the fleet as a reader may see it."""
        parameters(request.query, ())
        picture = await self._current(turn)
        names = await reader.names(picture.namespaces)
        notes = (*self.notes(), *name_notes(reader, names))
        etag = tag(self.instance, picture.version, picture.made, _shown(names), notes)
        if has_it(request, etag):
            return unchanged(etag)
        gzip = accepts_gzip(request)
        pieces = self._kept.pop((etag, gzip), None)
        if pieces is None:
            machines = (msgspec.Raw(_redacted(machine, names)) for machine in picture.machines)
            answer = Fleet(machines, picture.types, notes)  # type: ignore[arg-type]  # made piece by piece
            pieces = await turn.last(packed(pieces_of(answer), gzip=gzip))
        self._kept[etag, gzip] = pieces
        if len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return answered(pieces, etag=etag, gzip=gzip)

    async def _current(self, turn: Turn) -> _Picture:
        """Return a picture that is new enough."""
        async with self._making:  # a second reader waits for the picture that the first one makes
            picture, version = self._picture, self.cluster.view.changes
            if picture is not None and (picture.version == version or self.clock() < picture.made + AGE):
                return picture
            self._picture = await turn.last(self._drawn(version))
            return self._picture

    def _drawn(self, version: int) -> Iterator[_Picture | None]:
        ranked: list[tuple[int, bytes]] = []
        sums, namespaces = Sums(), set[str]()
        for item in ranked_machines(self.cluster, count_unknown_only=self.count_unknown_only):
            if item is None:
                yield None
                continue
            rank, machine = item
            sums.add(machine)
            namespaces.update(holder.namespace for holder in machine.holders)
            ranked.append((rank, msgspec.json.encode(to_json(machine))))
        yield None
        ranked.sort(key=itemgetter(0))
        machines = tuple(text for _, text in ranked)
        yield None
        yield _Picture(version, self.clock(), machines, sums.types(), frozenset(namespaces))


def _redacted(machine: bytes, names: Names) -> bytes:
    """Return a machine without the names that a reader may not see."""
    if names.shown is None:
        return machine
    fields = msgspec.json.decode(machine)
    for holder in fields["holders"]:
        if holder["namespace"] not in names:
            holder["namespace"] = holder["name"] = ""
    return msgspec.json.encode(fields)


def _shown(names: Names) -> object:
    """Return what tells apart which names are shown, for an ETag."""
    return None if names.shown is None else sorted(names.shown)


def name_notes(reader: Reader, names: Names) -> tuple[str, ...]:
    """Return what a reader has to know about names that are left out."""
    if reader.user is None:
        return (NO_NAMES,)
    notes = [SOME_NAMES.format(counted(names.hidden, "namespace"))] if names.hidden else []
    return (*notes, UNASKED.format(counted(names.unasked, "namespace"))) if names.unasked else tuple(notes)
