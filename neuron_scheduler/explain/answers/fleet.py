"""
The answer to "what does the fleet look like?", as values: each machine's devices, who holds them, and what is withheld.

The `map` command, the endpoint `/v1/fleet` and the page draw these values. They are small on purpose: a fleet has
hundreds of thousands of cores, so a core's state is a letter, and a holder's cores are runs.
"""

import enum

import attrs


class CoreState(enum.StrEnum):
    """What is known of one Neuron core, as a letter."""

    FREE = "f"
    """No pod holds it; if the machine is withheld, no pod gets it either."""
    HELD = "h"
    KEPT = "k"
    """Free, and nominated to a pending pod."""
    UNKNOWN = "u"
    """A pod with unreadable ids may hold it."""
    DOUBLE_BOOKED = "d"
    """Two pods claim it."""


@attrs.frozen
class Holder:
    """
    A pod on a machine, or one for which space is kept there.

    Attributes:
        namespace, name: empty where the reader may not see names.
        cores: the first and the last index of each run of the machine's cores that it holds, ascending; none for an
            unknown holder.
        kept: the pod is not there yet.
        unknown: what it holds cannot be read.
    """

    namespace: str
    name: str
    cores: tuple[tuple[int, int], ...] = ()
    kept: bool = False
    unknown: bool = False


@attrs.frozen
class MachinePicture:
    """
    One node with Neuron.

    Attributes:
        instance_type: without `ml.`; `unknown` if the node has no such label.
        shape: how its devices are linked: a value of the catalog's `Shape`, such as `torus`, `ring` or `line`.
        units: what pods may ask for: `device`, `core` or both. If only cores are served, the devices are unknown, and
            `devices` is the number of cores.
        cores: the state of each core, device by device: a string of the letters of `CoreState`.
        holders: the pods with Neuron, in the order of their cores; unknown holders last.
        used_devices: pods hold some or all of their cores.
        free_devices: as the metrics count them: what a pod of priority 0 that asks for devices only can get now.
        withheld: why the node takes no pods, in the words of the metrics (cordoned, tainted, ...); empty if it does.
        set_aside: its kubelet has rejected pods, so it is used last.
        free_blocks: sizes in devices of the free blocks that pods can get, the largest first; they add up to
            `free_devices`, and each is a legal count.
        zone, ultraserver: from its labels; empty if it has none.
    """

    node_name: str
    instance_type: str
    shape: str
    devices: int
    cores_per_device: int
    units: tuple[str, ...]
    cores: str
    holders: tuple[Holder, ...] = ()
    used_devices: int = 0
    free_devices: int = 0
    free_blocks: tuple[int, ...] = ()
    withheld: str = ""
    set_aside: bool = False
    zone: str = ""
    ultraserver: str = ""


@attrs.frozen
class TypeSummary:
    """
    The machines of one instance type: devices that are free, used and withheld add up to all, as in the metrics.

    Attributes:
        nodes: also those that serve cores only, which add no devices.
        largest_block: devices in the largest free block of one node.
    """

    instance_type: str
    nodes: int
    devices: int
    free: int
    used: int
    withheld: int
    largest_block: int


@attrs.frozen
class Fleet:
    """
    All machines and their sums by instance type.

    Attributes:
        machines: the worst first: withheld, then with unknown or double-booked cores, then fragmented ones, by how many
            free devices are outside of the largest block. Equal ones by age, the oldest first.
        types: by name.
        notes: what the reader has to know about the picture, such as names that are left out: one sentence each.
    """

    machines: tuple[MachinePicture, ...]
    types: tuple[TypeSummary, ...]
    notes: tuple[str, ...] = ()
