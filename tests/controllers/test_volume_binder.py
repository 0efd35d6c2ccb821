"""Volumes are bound before their pod: what is written, what is waited for, and what ends the wait."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, cast

import anyio
import anyio.lowlevel
import attrs
import pytest

from neuron_scheduler.cluster.changes import NodeGone, PodGone, StorageChanged
from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.controllers.volume_binder import VolumeBinder
from neuron_scheduler.kube.writes.binder import BindOutcome, Fenced, Gone, Refused
from neuron_scheduler.model.pod import Pod
from neuron_scheduler.model.volumes import ClaimRef, PersistentVolume, PersistentVolumeClaim, Storage
from neuron_scheduler.scheduling.cycle.volume_plan import VolumePlan, release, reserve_volumes
from tests.support.builders import pod
from tests.support.storage import claim, host, stored, volume, zoned

NODES = zoned(a="x", b="y")
P = pod(volume_claims=("data",))
PREFIX = 'running PreBind plugin "VolumeBinding": '


@attrs.define(eq=False)
class FakeWriter:
    """Answers all writes with one outcome, and remembers them."""

    outcome: int | Refused | Fenced = 10
    written: list[tuple[str, str]] = attrs.field(factory=list)

    async def keep(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> int | Refused | Fenced:
        """Remember a volume and its claim."""
        self.written.append((volume.name, claim.key))
        return self.outcome

    async def select_node(self, claim: PersistentVolumeClaim, node_name: str) -> int | Refused | Fenced:
        """Remember a claim and its node."""
        self.written.append((claim.key, node_name))
        return self.outcome


@attrs.define(eq=False)
class FakeMetrics:
    """Remembers whose volumes failed to be bound."""

    counted: list[tuple[str, float, bool]] = attrs.field(factory=list)

    def observe_volume_binding(self, profile: str, seconds: float, *, failed: bool) -> None:
        self.counted.append((profile, seconds, failed))


def binder_of(
    cluster: Cluster, writer: FakeWriter, *, timeout: float = 600, metrics: FakeMetrics | None = None
) -> VolumeBinder:
    """Return a binder whose clock advances by a second each time it is read."""
    return VolumeBinder(
        cluster=cluster,
        writer=cast(Any, writer),
        metrics=cast(Any, FakeMetrics() if metrics is None else metrics),
        timeouts={P.scheduler_name: timeout},
        clock=partial(next, count(0.0)),
    )


@attrs.define(eq=False)
class Waiting:
    """A pod whose volumes are being bound."""

    cluster: Cluster
    binder: VolumeBinder
    writer: FakeWriter
    plan: VolumePlan
    outcome: BindOutcome | str | None = "still waiting"

    async def hear(self, *objects: Storage) -> None:
        """Store objects as the informer would, and let the waiting pod check them."""
        for changed in objects:
            self.cluster.put_storage(changed)
            self.binder.observe(StorageChanged(None, changed))
        await anyio.wait_all_tasks_blocked()

    def become(self, outcome: BindOutcome | None) -> None:
        self.outcome = outcome


@asynccontextmanager
async def waiting(
    *storage: Storage, on: str = "a", of: Pod = P, outcome: int | Refused | Fenced | None = None
) -> AsyncIterator[Waiting]:
    """Reserve the volumes of a pod, carry the plan out, and wait until nothing moves."""
    cluster = stored(NODES, *storage)
    writer = FakeWriter() if outcome is None else FakeWriter(outcome)
    binder = binder_of(cluster, writer)
    cluster.assume(attrs.evolve(of, node_name=on))
    plan = reserve_volumes(binder.cluster, of, on)
    assert plan is not None
    waiter = Waiting(cluster, binder, writer, plan)

    async def prepare() -> None:
        waiter.become(await binder.prepare(of, plan))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prepare)
        await anyio.wait_all_tasks_blocked()
        yield waiter
        tasks.cancel_scope.cancel()
    assert binder.waiting == 0


def kept(version: str = "10", **rest: Any) -> PersistentVolume:
    """Return the volume with its claim, as of a version."""
    return volume(of="data", on=host("a"), resource_version=version, **rest)


MADE = volume("made", class_name="gp3", of="data", resource_version="12")


def selected(version: str = "10", node: str | None = "a", **rest: Any) -> PersistentVolumeClaim:
    """Return the claim that waits for its volume, as of a version."""
    return claim(class_name="gp3", selected_node=node, resource_version=version, **rest)


async def test_a_volume_that_is_there() -> None:
    """It is kept for the claim, and the pod waits until the controller has bound both."""
    async with waiting(claim(), volume(on=host("a"))) as waiter:
        assert waiter.writer.written == [("pv", "default/data")]
        assert waiter.outcome == "still waiting"
        await waiter.hear(kept())
        assert waiter.outcome == "still waiting"
        await waiter.hear(claim(bound_to="pv", resource_version="11"))
        assert waiter.outcome is None


async def test_a_volume_that_is_made() -> None:
    """The node is selected, and the pod waits for the provisioner's volume."""
    async with waiting(claim(class_name="gp3")) as waiter:
        assert waiter.writer.written == [("default/data", "a")]
        await waiter.hear(selected())
        await waiter.hear(selected("11", bound_to="made", bind_completed=False))
        await waiter.hear(selected("12", bound_to="made"))
        assert waiter.outcome == "still waiting"  # the volume is not known yet: does it fit the node?
        await waiter.hear(MADE)
        assert waiter.outcome is None


async def test_two_volumes_that_are_made() -> None:
    """The watch may show them one after the other; the pod waits for both."""
    both = attrs.evolve(P, constraints=attrs.evolve(P.constraints, volume_claims=("data", "logs")))
    async with waiting(claim(class_name="gp3"), claim("logs", class_name="gp3"), of=both) as waiter:
        await waiter.hear(selected(), selected(name="logs"))
        await waiter.hear(selected("12", bound_to="made"), MADE)
        assert waiter.outcome == "still waiting"
        await waiter.hear(selected("12", name="logs", bound_to="more"), attrs.evolve(MADE, name="more"))
        assert waiter.outcome is None


async def test_what_is_older_than_the_write_is_not_judged() -> None:
    """The watch may still show an earlier state."""
    async with waiting(claim(class_name="gp3")) as waiter:
        await waiter.hear(claim(class_name="gp3", resource_version="9", attributes_class="from before"))
        assert waiter.outcome == "still waiting"


FAILURES: dict[str, tuple[Callable[[], tuple[Storage, ...]], str]] = {
    "the provisioner wants another node": (
        lambda: (selected("11", node=None),),
        'binding volumes: provisioning failed for PVC "data"',
    ),
    "another node was selected": (
        lambda: (selected("11", node="b"),),
        'binding volumes: provisioning failed for PVC "data"',
    ),
    "the volume is out of reach": (
        lambda: (attrs.evolve(MADE, required_terms=host("b")), selected("11", bound_to="made")),
        'binding volumes: pv "made" node affinity doesn\'t match node "a"',
    ),
    "a claim was made anew": (
        lambda: (attrs.evolve(selected("11"), uid="new"),),
        'binding volumes: persistentvolumeclaim "data" not found',
    ),
}


@pytest.mark.parametrize("sentence", FAILURES)
async def test_provisioning_gives_up(sentence: str) -> None:
    """The pod is scheduled again."""
    changes, want = FAILURES[sentence]
    async with waiting(claim(class_name="gp3")) as waiter:
        await waiter.hear(*changes())
        assert waiter.outcome == Refused(0, PREFIX + want)


KEEPING_FAILURES: dict[str, tuple[tuple[Storage, ...], str]] = {
    "the controller has given the volume up": (
        (volume(on=host("a"), resource_version="11"),),
        'ClaimRef got reset for pv "pv"',
    ),
    "the volume is another claim's now": (
        (volume(on=host("a"), of="other", resource_version="11"),),
        'ClaimRef got reset for pv "pv"',
    ),
    "the claim was made anew": (
        (kept(), attrs.evolve(claim(resource_version="11"), uid="new")),
        'persistentvolumeclaim "data" not found',
    ),
    "the claim was bound to another volume": (
        (kept(), claim(bound_to="elsewhere", resource_version="11")),
        'persistentvolumeclaim "data" was bound to another pv, "elsewhere"',
    ),
}


@pytest.mark.parametrize("sentence", KEEPING_FAILURES)
async def test_keeping_gives_up(sentence: str) -> None:
    """The pod is scheduled again."""
    changes, want = KEEPING_FAILURES[sentence]
    async with waiting(claim(), volume(on=host("a"))) as waiter:
        await waiter.hear(*changes)
        assert waiter.outcome == Refused(0, f"{PREFIX}binding volumes: {want}")


@pytest.mark.parametrize(
    ("lost", "want"),
    [
        (volume(on=host("a")), 'persistentvolume "pv" not found'),
        (claim(), 'persistentvolumeclaim "data" not found'),
    ],
)
async def test_what_was_kept_is_deleted(lost: PersistentVolume | PersistentVolumeClaim, want: str) -> None:
    """The pod is scheduled again, and the message names what is gone."""
    async with waiting(claim(), volume(on=host("a"))) as waiter:
        waiter.cluster.remove_storage(lost)
        waiter.binder.observe(StorageChanged(lost, None))
        await anyio.wait_all_tasks_blocked()
        assert waiter.outcome == Refused(0, f"{PREFIX}binding volumes: {want}")


async def test_the_pod_is_deleted() -> None:
    """Nothing is waited for then."""
    async with waiting(claim(class_name="gp3")) as waiter:
        waiter.cluster.remove_pod(P.uid)
        waiter.binder.observe(PodGone(P, None, ""))
        await anyio.wait_all_tasks_blocked()
        assert waiter.outcome == Gone()


async def test_the_node_is_deleted() -> None:
    """The pod needs another one."""
    async with waiting(claim(class_name="gp3")) as waiter:
        waiter.cluster.remove_node("a")
        waiter.binder.observe(NodeGone("a", ()))
        await anyio.wait_all_tasks_blocked()
        assert waiter.outcome == Refused(0, f'{PREFIX}binding volumes: node "a" not found')


async def test_nobody_binds_the_volume() -> None:
    """After the time limit of its profile the pod is scheduled again, and the failure is counted."""
    metrics = FakeMetrics()
    cluster = stored(NODES, claim(class_name="gp3"))
    binder = binder_of(cluster, FakeWriter(), timeout=0, metrics=metrics)
    cluster.assume(attrs.evolve(P, node_name="a"))
    plan = reserve_volumes(binder.cluster, P, "a")
    assert plan is not None
    want = f"{PREFIX}binding volumes: not bound within 0 s: data"
    assert await binder.prepare(P, plan) == Refused(0, want)
    assert metrics.counted == [(P.scheduler_name, 1.0, True)]


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (Refused(0, "was modified"), Refused(0, f"{PREFIX}was modified")),
        (Fenced(), Fenced()),
    ],
)
async def test_a_write_that_fails(outcome: int | Refused | Fenced, want: BindOutcome) -> None:
    """There is nothing to wait for."""
    async with waiting(claim(class_name="gp3"), outcome=outcome) as waiter:
        assert waiter.outcome == want


async def test_a_write_after_one_that_failed() -> None:
    """No claim is tied to a node that the pod will perhaps not get."""
    both = attrs.evolve(P, constraints=attrs.evolve(P.constraints, volume_claims=("data", "logs")))
    local, logs = volume(on=host("a")), claim("logs", class_name="gp3")
    async with waiting(claim(), local, logs, of=both, outcome=Refused(0, "was modified")) as waiter:
        assert waiter.writer.written == [("pv", "default/data")]


async def test_what_is_released_is_free_again() -> None:
    """Another pod may be given the volume."""
    async with waiting(claim(), claim("other"), volume(on=host("a"))) as waiter:
        view = waiter.cluster.view
        assert not view.free_volumes(claim().wish).positive
        release(waiter.cluster, waiter.plan)
        assert view.free_volumes(claim().wish).positive


async def test_a_volume_kept_by_another_pod_of_the_claim() -> None:
    """The second pod waits for the same volume, and assumes nothing."""
    kept_already = volume(on=host("a"), claim=ClaimRef("default/data", "uid-data"), resource_version="10")
    async with waiting(claim(), kept_already) as waiter:
        assert waiter.outcome == "still waiting"
        await waiter.hear(claim(bound_to="pv", resource_version="11"))
        assert waiter.outcome is None


def test_nothing_to_do() -> None:
    """Pods without claims, or with bound ones, need no plan."""
    cluster = stored(NODES, claim(bound_to="pv"), volume(of="data"))
    binder = binder_of(cluster, FakeWriter())
    assert reserve_volumes(binder.cluster, P, "a") is None
    assert reserve_volumes(binder.cluster, pod(), "a") is None
