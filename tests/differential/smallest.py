"""
Minimise a world with a disagreement: remove objects that it does not need, asking both sides each time.

hypothesis could shrink its draws, but one draw changes the meaning of all that follow, and each step is a second of a
real control plane: after five minutes it had removed little. Removing objects takes seconds.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import attrs

from tests.control_plane.rest import ApiError
from tests.differential.comparison import disagreements, recorded
from tests.differential.judge import Judge
from tests.differential.recording import Recording
from tests.differential.vocabulary import Object
from tests.differential.world import World

_PARTS: Final = ("pending", "bound", "nominated", "beside", "nodes")
_NEEDED: Final = ("containers", "nodeName", "schedulerName")
"""What no pod of a world can be without."""

Objects = tuple[Object, ...]


async def smallest(judge: Judge, name: str, world: World) -> Recording | None:
    """Return a minimal world on which both sides still disagree; None if they agree."""
    disagreement = await _disagreement(judge, name, world)
    if disagreement is None:
        return None

    async def ask(part: str, objects: Objects) -> bool:
        nonlocal disagreement, world
        fewer = attrs.evolve(world, **{part: objects})
        still = await _disagreement(judge, name, fewer)
        if still is not None:
            disagreement, world = still, fewer
        return still is not None

    for part in _PARTS:
        await _fewest(getattr(world, part), partial(ask, part))
    for part in ("pending", "bound", "nominated"):
        for number in range(len(getattr(world, part))):
            for field in sorted(getattr(world, part)[number]["spec"].keys() - set(_NEEDED)):
                await ask(part, _without(getattr(world, part), number, field))
    return disagreement


async def _disagreement(judge: Judge, name: str, world: World) -> Recording | None:
    try:
        recording = await recorded(judge, name, world)
    except ApiError:
        return None  # a removed claim or volume is still referred to
    return recording if any(disagreements(recording)) else None


async def _fewest(objects: Objects, enough: Callable[[Objects], Awaitable[bool]]) -> None:
    """Remove all objects, then halves, quarters and so on of the remaining ones."""
    size = len(objects)
    while size:
        start = 0
        while start < len(objects):
            fewer = objects[:start] + objects[start + size :]
            if await enough(fewer):
                objects = fewer
            else:
                start += size
        size //= 2


def _without(objects: Objects, number: int, field: str) -> Objects:
    """Return the pods, one of them without a field of its spec."""
    pod = objects[number]
    spec = {name: value for name, value in pod["spec"].items() if name != field}
    return (*objects[:number], {**pod, "spec": spec}, *objects[number + 1 :])
