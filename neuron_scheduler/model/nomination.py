"""What a write does to `status.nominatedNodeName`: it names a node, removes the name, or leaves the field as it is."""

from typing import Final

import attrs


@attrs.frozen
class Nominate:
    """The status names this node."""

    node_name: str


@attrs.frozen
class Clear:
    """The status names no node."""


@attrs.frozen
class Keep:
    """The write says nothing about the field."""


CLEAR: Final = Clear()
KEEP: Final = Keep()

NominationChange = Nominate | Clear | Keep


def change_to(node_name: str) -> Nominate | Clear:
    """Return the change after which the field has this value; an empty one is none."""
    return Nominate(node_name) if node_name else CLEAR
