"""The events that follow from a change of a storage object, and the pods that they wake."""

import attrs
import pytest

from neuron_scheduler.model.volumes import (
    ClaimRef,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Storage,
    VolumeAttachment,
)
from neuron_scheduler.scheduling.cycle.volume_plan import volume_plan
from neuron_scheduler.scheduling.plugins.cluster_events import ClusterEvent
from neuron_scheduler.scheduling.plugins.registry import CONCERNED_BY
from neuron_scheduler.scheduling.queue.places import Place
from neuron_scheduler.scheduling.queue.scheduling_queue import SchedulingQueue
from neuron_scheduler.scheduling.queue.storage_events import StorageEvent, added, deleted, taken_back, updated
from tests.support.builders import node, pod
from tests.support.storage import MADE, claim, stored, volume, zone

E = ClusterEvent
NODE = CSINode("u", "n", {"ebs": 3})
DRIVER = CSIDriver("u", "ebs", storage_capacity=True)
NEEDED = CSIDriver("u", "ebs", required=True)
ROOM = CSIStorageCapacity("u", "d/c", "gp3", None, 5)
ATTACHMENT = VolumeAttachment("u", "va", "n")
ATTACHED = StorageEvent(E.ATTACHMENT_GONE)


@pytest.mark.parametrize(
    ("storage", "want"),
    [
        (claim(), [StorageEvent(E.CLAIM_ADDED, "default/data")]),
        (claim(bound_to="pv"), [StorageEvent(E.CLAIM_ADDED, "default/data"), ATTACHED]),
        (volume(), [StorageEvent(E.VOLUME_ADDED)]),
        (volume(of="data"), [StorageEvent(E.VOLUME_ADDED, "default/data"), ATTACHED]),
        (MADE, [StorageEvent(E.CLASS_ADDED)]),
        (NODE, [StorageEvent(E.CSI_NODE_ADDED)]),
        (DRIVER, []),
        (ROOM, [StorageEvent(E.CAPACITY_CHANGED)]),
        (ATTACHMENT, []),
    ],
)
def test_what_comes(storage: Storage, want: list[StorageEvent]) -> None:
    """A claim concerns its pods, a free volume concerns all pods."""
    assert list(added(storage)) == want


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        (claim(), claim(resource_version="2"), []),
        (claim(), claim(terminating=True), [StorageEvent(E.CLAIM_CHANGED, "default/data")]),
        (
            claim(),
            claim(bound_to="pv"),
            [StorageEvent(E.CLAIM_CHANGED, "default/data"), ATTACHED],
        ),
        (volume(), volume(resource_version="2"), []),
        (volume(), volume(capacity=9), [StorageEvent(E.VOLUME_CHANGED)]),
        (volume(), volume(claim=ClaimRef("default/x")), [StorageEvent(E.VOLUME_CHANGED, "default/x"), ATTACHED]),
        (volume(), volume(handle="other"), [StorageEvent(E.VOLUME_CHANGED), ATTACHED]),
        (MADE, attrs.evolve(MADE, allowed_topologies=zone("a")), [StorageEvent(E.CLASS_CHANGED)]),
        (MADE, MADE, []),
        (NODE, CSINode("u", "n", {"ebs": 4}), [StorageEvent(E.CSI_NODE_CHANGED)]),
        (NODE, CSINode("u", "n", {"ebs": 2}), []),
        (NODE, CSINode("u", "n"), [StorageEvent(E.CSI_NODE_CHANGED)]),
        (NODE, attrs.evolve(NODE, drivers=frozenset({"efs"})), [StorageEvent(E.CSI_NODE_CHANGED)]),
        (attrs.evolve(NODE, drivers=frozenset({"efs"})), NODE, []),
        (DRIVER, CSIDriver("u", "ebs"), [StorageEvent(E.CSI_DRIVER_CHANGED)]),
        (NEEDED, CSIDriver("u", "ebs"), [StorageEvent(E.CSI_DRIVER_CHANGED)]),
        (CSIDriver("u", "ebs"), NEEDED, []),
        (CSIDriver("u", "ebs"), DRIVER, []),
        (ROOM, attrs.evolve(ROOM, largest=6), [StorageEvent(E.CAPACITY_CHANGED)]),
        (ROOM, attrs.evolve(ROOM, largest=4), []),
        (ATTACHMENT, ATTACHMENT, []),
    ],
)
def test_what_changes(old: Storage, new: Storage, want: list[StorageEvent]) -> None:
    """Only what could help a pod is an event."""
    assert list(updated(old, new)) == want


def test_what_goes() -> None:
    """A deleted object frees room or a requirement; a claim whose volume is deleted may get another one."""
    assert list(deleted(ATTACHMENT)) == list(deleted(MADE)) == [ATTACHED]
    assert list(deleted(NODE)) == [StorageEvent(E.CSI_NODE_CHANGED)]
    assert list(deleted(DRIVER)) == list(deleted(NEEDED)) == [StorageEvent(E.CSI_DRIVER_CHANGED)]
    assert not list(deleted(CSIDriver("u", "ebs")))
    assert list(deleted(volume(of="data"))) == [StorageEvent(E.VOLUME_CHANGED, "default/data"), ATTACHED]
    assert list(deleted(volume())) == list(deleted(claim(bound_to="pv"))) == [ATTACHED]
    assert not list(deleted(ROOM))


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
    assert list(taken_back(plan)) == want


def waiting(*claims: str, plugin: str = "VolumeBinding") -> SchedulingQueue:
    """Return a queue in which a pod with these claims was refused."""
    queue = SchedulingQueue(initial_backoff=0)
    queue.add(pod(volume_claims=claims), 0)
    queued = queue.pop(0)
    assert queued is not None
    queue.unschedulable(queued, frozenset((plugin,)), 0)
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
