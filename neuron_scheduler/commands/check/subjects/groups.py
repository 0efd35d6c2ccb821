"""
Groups of pods that start together: what keeps one from starting whatever comes free, and where no group is decided.

Only groups with members that wait are looked at. Members count whoever schedules them, also those without Neuron, such
as a launcher.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from neuron_scheduler.cluster.index.labels import domain_of
from neuron_scheduler.cluster.tables.groups import Groups
from neuron_scheduler.commands.check.subjects.finding import Finding, note, ok, warning
from neuron_scheduler.commands.check.subjects.snapshot import Snapshot
from neuron_scheduler.model.pod import DEFAULT_SCHEDULER, Pod
from neuron_scheduler.model.pod_group import UNKNOWN, GroupKey, PodGroup
from neuron_scheduler.model.wording import count_text, list_of

LONG: Final = 600.0
"""Seconds since the last member was created after which it is said that others are missing."""


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    groups = snapshot.cluster.groups
    waiting = [(key, _waits_for(groups, key)) for key in sorted(groups, key=str)]
    foreign = [str(key) for key, names in waiting if DEFAULT_SCHEDULER in names]
    ours = [key for key, names in waiting if names & {*snapshot.scheduler_names} - {DEFAULT_SCHEDULER}]
    faults = [*_faults(snapshot, {groups.group(key): [*groups.members(key).values()] for key in ours})]
    yield from faults
    if foreign and any(deployment.has_extender for deployment in snapshot.ours):
        yield note(
            "groups-of-kube-scheduler",
            f"kube-scheduler decides the pods of {count_text(len(foreign), 'group')}, and the extender does not keep"
            " them together",
            advice="kube-scheduler does so only with a plugin or feature of its own; or set schedulerName:"
            " my-scheduler in their templates, if that scheduler runs beside it",
            objects=foreign,
        )
    if ours and not faults:
        yield ok("groups", f"{count_text(len(ours), 'group of pods is', 'groups of pods are')} Pending, as expected")


def _waits_for(groups: Groups, key: GroupKey) -> set[str]:
    return {pod.scheduler_name for pod in groups.members(key).values() if not pod.node_name}


def _faults(snapshot: Snapshot, groups: Mapping[PodGroup, Sequence[Pod]]) -> Iterator[Finding]:
    mixed, few, nowhere, nodes = list[str](), list[str](), list[str](), [*snapshot.nodes]
    for group, members in groups.items():
        name = str(group.key)
        priorities = sorted({pod.priority for pod in members if not pod.node_name})
        if len(priorities) > 1:
            mixed.append(f"{name}: {list_of([*map(str, priorities)])}")
        young = snapshot.taken - max(pod.created for pod in members) < LONG
        if group.has_to_wait and len(members) < group.least and not young:
            few.append(f"{name}: {len(members)} of {group.least}" if group.least != UNKNOWN else f"{name}: no PodGroup")
        if group.topology and nodes and not any(domain_of(node, group.topology) for node in nodes):
            nowhere.append(f"{name}: {group.topology}")
    if mixed:
        yield warning(
            "group-priorities",
            "Members of a group have different priorities, so none is scheduled",
            advice="Give all pods of the job the same priorityClassName",
            objects=mixed,
        )
    if few:
        yield warning(
            "group-incomplete",
            "Groups have been Pending for ten minutes: members do not exist, or have scheduling gates",
            advice="Create them, or lower the count. An MPIJob with launcherCreationPolicy: WaitForWorkersReady creates"
            " its launcher after its workers: do not count it in the label min-available",
            objects=few,
        )
    if nowhere:
        yield warning(
            "group-topology",
            "Groups must be on nodes with the same value of a label that no node has",
            advice="Correct the topology key, or see why the nodes lack the label",
            objects=nowhere,
        )
