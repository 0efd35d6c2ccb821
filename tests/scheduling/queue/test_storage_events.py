"""The events that follow from a change of a storage object, and the pods that they wake."""

import attrs
import pytest

from neuron_scheduler.model.volumes import (
    ClaimRef,
    CSIDriver,
    CSINode,
    Storage,
    VolumeAttachment,
)
from neuron_scheduler.scheduling.cycle.volume_plan import volume_plan
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import StorageEvent, events_of_release, storage_events
from tests.support.builders import node, pod
from tests.support.queueing import new_queue
from tests.support.storage import MADE, claim, room, stored, volume

E = ClusterEvent
NODE = CSINode("u", "n", {"ebs": 3})
DRIVER = CSIDriver("u", "ebs", storage_capacity=True)
ROOM = room("d/c", 5, uid="u")
ATTACHMENT = VolumeAttachment("u", "va", "n")


def of_claim(*events: ClusterEvent) -> list[StorageEvent]:
    """Return events that concern the pods of one claim."""
    return [StorageEvent(event, "default/data") for event in events]


@pytest.mark.parametrize(
    ("storage", "comes", "changes", "goes"),
    [
        (claim(), of_claim(E.CLAIM_ADDED), of_claim(E.CLAIM_CHANGED), []),
        (volume(of="data"), of_claim(E.VOLUME_ADDED), of_claim(E.VOLUME_CHANGED), of_claim(E.VOLUME_CHANGED)),
        (volume(), [StorageEvent(E.VOLUME_ADDED)], *[[StorageEvent(E.VOLUME_CHANGED)]] * 2),
        (MADE, [StorageEvent(E.CLASS_ADDED)], [StorageEvent(E.CLASS_CHANGED)], []),
        (NODE, [StorageEvent(E.CSI_NODE_ADDED)], *[[StorageEvent(E.CSI_NODE_CHANGED)]] * 2),
        (DRIVER, [], *[[StorageEvent(E.CSI_DRIVER_CHANGED)]] * 2),
        (ROOM, [StorageEvent(E.CAPACITY_CHANGED)], [], []),
        (ATTACHMENT, [], [], []),
    ],
)
def test_what_follows(
    storage: Storage, comes: list[StorageEvent], changes: list[StorageEvent], goes: list[StorageEvent]
) -> None:
    """A claim concerns its pods, a free volume concerns all pods."""
    for before, after, want in ((None, storage, comes), (storage, storage, changes), (storage, None, goes)):
        assert list(storage_events(before, after)) == want


@pytest.mark.parametrize(
    ("before", "after", "helps"), [(5, 6, True), (5, 4, False), (5, None, False), (None, 4, True), (None, None, False)]
)
def test_only_room_that_grows_helps(before: int | None, after: int | None, *, helps: bool) -> None:
    """With each volume that is made there is less; what was unknown may be enough."""
    want = [StorageEvent(E.CAPACITY_CHANGED)] if helps else []
    assert list(storage_events(room("d/c", before, uid="u"), room("d/c", after, uid="u"))) == want


@pytest.mark.parametrize(("before", "about"), [(None, "default/b"), ("a", ""), ("b", "default/b")])
def test_whom_a_reserved_volume_concerns(before: str | None, about: str) -> None:
    """The claim that it is reserved for now; and that for which it was before, which may take another volume now."""
    free, reserved = volume(), attrs.evolve(volume(), claim=ClaimRef("default/b"))
    earlier = free if before is None else attrs.evolve(free, claim=ClaimRef(f"default/{before}"))
    assert StorageEvent(E.VOLUME_CHANGED, about) in storage_events(earlier, reserved)


@pytest.mark.parametrize(
    ("storage", "want"),
    [
        ((claim(), volume()), [StorageEvent(E.VOLUME_CHANGED)]),
        ((claim(class_name="gp3"),), [StorageEvent(E.CLAIM_CHANGED, "default/data")]),
    ],
)
def test_what_is_taken_back(storage: tuple[Storage, ...], want: list[StorageEvent]) -> None:
    """A reserved volume is free for all pods; a claim whose node was selected concerns its pods."""
    plan = volume_plan(stored([node("a")], *storage), pod(volume_claims=("data",)), "a")
    assert plan is not None
    assert list(events_of_release(plan)) == want


def waiting(*claims: str, plugin: str = "VolumeBinding") -> SchedulingQueue:
    """Return a queue in which a pod with these claims was refused."""
    queue = new_queue(initial_backoff=0)
    queue.add(pod(volume_claims=claims), 0)
    queued = queue.pop(0)
    assert queued is not None
    queue.put_back_refused(queued, frozenset((plugin,)), 0)
    return queue


@pytest.mark.parametrize(
    ("event", "about", "plugin", "woken"),
    [
        pytest.param(E.CLAIM_ADDED, "default/data", "VolumeBinding", True, id="its claim"),
        pytest.param(E.CLAIM_ADDED, "default/other", "VolumeBinding", False, id="another claim"),
        pytest.param(E.CLAIM_ADDED, "other/data", "VolumeBinding", False, id="another namespace"),
        pytest.param(E.VOLUME_ADDED, "", "VolumeBinding", True, id="a free volume"),
        pytest.param(E.CLAIM_CHANGED, "default/data", "NodeAffinity", False, id="another plugin"),
        pytest.param(E.CLAIM_CHANGED, "default/data", "VolumeRestrictions", False, id="an event of no use"),
        pytest.param(E.CLASS_ADDED, "", "NodeVolumeLimits", True, id="another provisioner"),
        pytest.param(E.ATTACHMENT_GONE, "", "NodeVolumeLimits", True, id="room on a node"),
    ],
)
def test_whom_it_wakes(event: ClusterEvent, about: str, plugin: str, *, woken: bool) -> None:
    """Only pods that a volume plugin refused, and for a claim only its pods."""
    queue = waiting("data", plugin=plugin)
    queue.note(event, claim=about)
    assert (queue.pop(1) is not None) == woken
    assert queue.count(Place.UNSCHEDULABLE) == (not woken)


def test_kube_schedulers_registrations() -> None:
    """Each event concerns at least the plugins that kube-scheduler registers for it."""
    wanted = {
        E.CLAIM_ADDED: {"VolumeBinding", "VolumeZone", "VolumeRestrictions", "NodeVolumeLimits"},
        E.CLAIM_CHANGED: {"VolumeBinding", "VolumeZone"},
        E.VOLUME_ADDED: {"VolumeBinding", "VolumeZone"},
        E.VOLUME_CHANGED: {"VolumeBinding", "VolumeZone"},
        E.CLASS_ADDED: {"VolumeBinding", "VolumeZone"},
        E.CLASS_CHANGED: {"VolumeBinding"},
        E.CSI_NODE_ADDED: {"VolumeBinding", "NodeVolumeLimits"},
        E.CSI_NODE_CHANGED: {"VolumeBinding", "NodeVolumeLimits"},
        E.CSI_DRIVER_CHANGED: {"VolumeBinding", "NodeVolumeLimits"},
        E.CAPACITY_CHANGED: {"VolumeBinding"},
        E.ATTACHMENT_GONE: {"NodeVolumeLimits"},
        E.ASSIGNED_POD_GONE: {"VolumeRestrictions", "NodeVolumeLimits"},
        E.NODE_ADDED: {"VolumeBinding", "VolumeZone", "VolumeRestrictions"},
        E.NODE_LABELS: {"VolumeBinding", "VolumeZone"},
    }
    for event, plugins in wanted.items():
        assert plugins <= CONCERNED_BY[event]
