"""
The answer to "what does the fleet look like?", as values: each machine's devices, who holds them, and what is withheld.

The `map` command, the endpoint `/v1/fleet` and the page draw these values.
"""

import enum

import attrs


class CoreState(enum.StrEnum):
    """What is known of one Neuron core."""

    FREE = "free"
    HELD = "held"
    KEPT = "kept"
    """Nominated to a pending pod."""
    UNKNOWN = "unknown"
    """A pod with unreadable ids may hold it."""
    DOUBLE_BOOKED = "double_booked"


@attrs.frozen
class Holder:
    """
    A pod on a machine, or one for which space is kept there.

    Attributes:
        namespace, name: empty where the reader may not see names.
        cores: indexes of the machine's cores, ascending; empty for an unknown holder.
        kept: the pod is not there yet.
        unknown: what it holds cannot be read.
    """

    namespace: str
    name: str
    cores: tuple[int, ...] = ()
    kept: bool = False
    unknown: bool = False


@attrs.frozen
class MachinePicture:
    """
    One node with Neuron.

    Attributes:
        shape: `torus`, `ring`, `line` or `flat`, as in the catalog.
        cores: the state of each core, device by device.
        withheld: why the node takes no pods, in the words of the metrics (cordoned, tainted, ...); empty if it does.
        set_aside: its kubelet has rejected pods, so it is used last.
        free_blocks: lengths in devices of the free blocks that pods can get, the largest first.
        ultraserver: its label, if it has one.
    """

    node_name: str
    instance_type: str
    shape: str
    devices: int
    cores_per_device: int
    cores: tuple[CoreState, ...]
    holders: tuple[Holder, ...] = ()
    free_devices: int = 0
    free_blocks: tuple[int, ...] = ()
    withheld: str = ""
    set_aside: bool = False
    zone: str = ""
    ultraserver: str = ""


@attrs.frozen
class TypeSummary:
    """The machines of one instance type: devices that are free, used and withheld add up to all."""

    instance_type: str
    nodes: int
    devices: int
    free: int
    used: int
    withheld: int
    largest_block: int


@attrs.frozen
class Fleet:
    """All machines, the worst first (withheld, then unknown, then fragmented), and their sums by instance type."""

    machines: tuple[MachinePicture, ...]
    types: tuple[TypeSummary, ...]
