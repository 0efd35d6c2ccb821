"""
Groups of pods that start together.

Several projects have words for such a group (`Dialect`). All of them end in one value, `PodGroup`, which every member
carries. Where members differ in what they say, `cluster.tables.groups` says what counts.

A *declared* group says how many members it needs, and they wait for each other. An *inferred* group follows from what
pods say about each other. Its members that exist are placed together or not at all; none waits for pods that do not
exist, because they may be created only when it runs (LeaderWorkerSet's LeaderReady).
"""

import enum
import re
from hashlib import sha256
from typing import Final

import attrs

from neuron_scheduler.model.node import ULTRASERVER_SIZES

LONGEST_NAME: Final = 100
_JOB: Final = re.compile(r"job(?:set)?-name=([^,|]+)")
"""How a pod affinity selects the pods of a job, whoever's label it is."""
NAME_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name")
COUNT_LABEL: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
"""Coscheduling's labels, which people write by hand."""
MOST_MEMBERS: Final = 100_000
"""A larger count is no count."""
UNKNOWN: Final = 1 << 30
"""The count of a group whose PodGroup does not exist or cannot be read: all that exist are too few."""


class Dialect(enum.StrEnum):
    """Whose words declare a group, by API group if there is one; where a pod uses several, the first one counts."""

    NATIVE = "scheduling.k8s.io"
    COSCHEDULING = "scheduling.x-k8s.io"
    KUEUE = "kueue"
    LEADER_WORKER_SET = "leader_worker_set"
    AFFINITY = "affinity"


def _short(name: str) -> str:
    """Return a name that a message can hold; a digest keeps long ones apart."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 17]}-{sha256(name.encode()).hexdigest()[:16]}"


@attrs.frozen(cache_hash=True)
class GroupKey:
    """The identity of a group."""

    dialect: Dialect
    namespace: str
    name: str = attrs.field(converter=_short)

    @property
    def title(self) -> str:
        """Its name for people: that of the job, if a pod affinity is about the pods of one."""
        job = _JOB.search(self.name) if self.dialect is Dialect.AFFINITY else None
        return self.name if job is None else job[1]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.title}"


@attrs.frozen(cache_hash=True)
class PodGroup:
    """
    A group, as one of its members says it, or as all do together.

    Attributes:
        least: members without which none is placed; 0 if the group does not say: then all that exist.
        expected: members that will exist at last; 0 if the group does not say.
        topology: the node label in one domain of which all members have to be; empty if there is none.
        of: which members are to share the domain, if that is said by a pod affinity; empty for all of them.
        fails_together: whether all members leave if one is evicted; None if that follows from the count.
        priority: of the group, whatever its members say; None if that is the highest of theirs.
    """

    key: GroupKey
    least: int = 0
    expected: int = 0
    topology: str = ""
    of: str = ""
    fails_together: bool | None = None
    priority: int | None = None

    @property
    def has_to_wait(self) -> bool:
        """Whether members wait for those that do not exist yet."""
        return self.least > 1

    @property
    def size(self) -> int:
        """How many members make it complete: said, or guessed as one for each node of an UltraServer; else 0."""
        return self.least or self.expected or ULTRASERVER_SIZES.get(self.topology, 0)


@attrs.frozen
class PodGroupObject:
    """An object of kind PodGroup; its `group` has a count of 1 if members start as they fit."""

    uid: str
    group: PodGroup
