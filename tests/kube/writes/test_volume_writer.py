"""A volume is kept for a claim, a node is selected for a claim, and no change of another writer is lost."""

import anyio
import attrs
import pytest

from neuron_scheduler.kube.writes.binder import Fenced, Refused
from neuron_scheduler.kube.writes.volume_writer import VolumeWriter
from neuron_scheduler.model.volumes import ClaimRef, PersistentVolume, PersistentVolumeClaim
from tests.support.patience import PATIENCE
from tests.support.scripted_server import Answer, Scripted, answer, hang, refuse, reset, scripted
from tests.support.storage import claim, volume

CLAIM = claim(class_name="c", resource_version="5")
VOLUME = volume(class_name="c", resource_version="8")
GONE = "persistentvolume 'pv' no longer serves claim 'default/data'"
CHANGED = "persistentvolumeclaim 'default/data' has changed since its node was selected"

# Deeper than any Python lets the decoder go.
DEEP = "[" * 200_000 + "]" * 200_000
WRITTEN = answer(f'{{"metadata": {{"name": "o", "managedFields": {DEEP}, "resourceVersion": "9"}}}}')


async def keep(
    *script: Answer, stored: PersistentVolume | None = VOLUME, may_bind: bool = True
) -> tuple[int | Refused | Fenced, Scripted]:
    """Keep the volume for the claim."""
    async with scripted(*script) as (server, client):
        writer = VolumeWriter(
            client=client,
            volume_by_name={"pv": stored}.get,
            claim_by_key=lambda _: None,
            may_bind=lambda: may_bind,
            timeout=4.0,
        )
        outcome = await writer.keep(VOLUME, CLAIM)
    assert not server.script
    return outcome, server


async def select(
    *script: Answer, stored: PersistentVolumeClaim | None = CLAIM
) -> tuple[int | Refused | Fenced, Scripted]:
    """Select a node for the claim."""
    async with scripted(*script) as (server, client):
        writer = VolumeWriter(
            client=client,
            volume_by_name=lambda _: None,
            claim_by_key={CLAIM.key: stored}.get,
            may_bind=lambda: True,
            timeout=4.0,
        )
        outcome = await writer.select_node(attrs.evolve(CLAIM, selected_node="n"), "n")
    assert not server.script
    return outcome, server


async def test_a_volume_is_kept() -> None:
    """The patch has the claim, as the volume controller would write it, and the version as a precondition."""
    outcome, server = await keep(WRITTEN)
    assert outcome == 9
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/persistentvolumes/pv")
    assert seen.headers["Content-Type"] == "application/merge-patch+json"
    assert seen.json == {
        "metadata": {
            "uid": "uid-pv",
            "resourceVersion": "8",
            "annotations": {"pv.kubernetes.io/bound-by-controller": "yes"},
        },
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": "data",
                "uid": "uid-data",
                "resourceVersion": "5",
            }
        },
    }


async def test_a_volume_that_its_owner_keeps_for_the_claim() -> None:
    """The owner of the volume has written the claim's name; only the uid is added."""
    outcome, server = await keep(WRITTEN, stored=attrs.evolve(VOLUME, claim=ClaimRef("default/data")))
    assert outcome == 9
    assert server.seen[0].json["spec"]["claimRef"]["uid"] == "uid-data"
    assert server.seen[0].json["metadata"]["annotations"] == {}


async def test_a_node_is_selected() -> None:
    """An annotation is added to the existing ones."""
    outcome, server = await select(WRITTEN)
    assert outcome == 9
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/namespaces/default/persistentvolumeclaims/data")
    annotations = {"volume.kubernetes.io/selected-node": "n"}
    assert seen.json == {"metadata": {"uid": "uid-data", "resourceVersion": "5", "annotations": annotations}}


async def test_what_is_written_already() -> None:
    """A repeated write finds the work done, and sends nothing."""
    kept = attrs.evolve(VOLUME, claim=ClaimRef("default/data", "uid-data"), available=False)
    assert (await keep(stored=kept))[0] == 8
    assert (await select(stored=attrs.evolve(CLAIM, selected_node="n", volume_name="made")))[0] == 5


@pytest.mark.parametrize(
    "stored",
    [
        None,
        attrs.evolve(VOLUME, claim=ClaimRef("default/other", "u")),
        attrs.evolve(VOLUME, claim=ClaimRef("default/data", "old")),
        attrs.evolve(VOLUME, uid="new"),
        attrs.evolve(VOLUME, available=False),
    ],
    ids=["deleted", "kept for another", "kept for a claim of the same name", "another of the name", "released"],
)
async def test_a_volume_that_no_longer_serves(stored: PersistentVolume | None) -> None:
    """The pod needs another decision."""
    assert (await keep(stored=stored))[0] == Refused(0, GONE)


@pytest.mark.parametrize(
    "stored",
    [
        None,
        attrs.evolve(CLAIM, uid="new"),
        attrs.evolve(CLAIM, selected_node="other"),
        attrs.evolve(CLAIM, volume_name="pv"),
    ],
    ids=["deleted", "another of the name", "another node", "bound"],
)
async def test_a_claim_that_has_changed(stored: PersistentVolumeClaim | None) -> None:
    """The same."""
    assert (await select(stored=stored))[0] == Refused(0, CHANGED)


@pytest.mark.parametrize(
    "failing",
    [reset, answer("<html/>", status=502), refuse(409, "Conflict", "was modified"), refuse(404, "NotFound")],
    ids=["reset", "page", "changed", "deleted"],
)
async def test_a_write_that_fails(failing: Answer) -> None:
    """It is not sent again here: the next attempt finds what the watch shows then."""
    outcome, _ = await keep(failing)
    assert isinstance(outcome, Refused)


async def test_a_short_timeout_bounds_the_write() -> None:
    """A write that is not answered within the writer's timeout fails; no other limit applies."""
    async with scripted(hang, impatient=True) as (server, client):
        writer = VolumeWriter(
            client=client,
            volume_by_name={"pv": VOLUME}.get,
            claim_by_key=lambda _: None,
            may_bind=lambda: True,
            timeout=0.25,
        )
        with anyio.fail_after(PATIENCE):
            outcome = await writer.keep(VOLUME, CLAIM)
    assert server.limits[-1] == 0.25
    assert outcome == Refused(0, "no answer in time to PATCH /api/v1/persistentvolumes/pv")


async def test_a_replica_that_may_not_write() -> None:
    """Nothing is sent."""
    outcome, server = await keep(may_bind=False)
    assert (outcome, server.seen) == (Fenced(), [])
