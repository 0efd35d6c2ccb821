"""A volume is kept for a claim, a node is selected for a claim, and no change of another writer is lost."""

import json
from typing import Any

import anyio
import pytest

from neuron_scheduler.kube.writes.volume_writer import Failed, HeldBack, VolumeWriter, WriteOutcome, Written
from tests.support.patience import PATIENCE
from tests.support.scripted_server import Answer, Scripted, answer, hang, refuse, reset, scripted
from tests.support.storage import claim, volume

CLAIM = claim(class_name="c", resource_version="5")
VOLUME = volume(class_name="c")
GONE = "persistentvolume 'pv' no longer serves claim 'default/data'"
CHANGED = "persistentvolumeclaim 'default/data' has changed since its node was selected"


AFTER = {"apiVersion": "v1", "metadata": {"name": "o", "resourceVersion": "9"}}
KEPT, SELECTED = (answer(AFTER | {"kind": kind}) for kind in ("PersistentVolume", "PersistentVolumeClaim"))


def stored_volume(
    *, claim_ref: Any = None, uid: str = "uid-pv", phase: str = "Available", **spec: Any
) -> dict[str, Any]:
    """Return the volume as a GET gives it."""
    asked = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "c"} | spec
    if claim_ref is not None:
        asked["claimRef"] = {"namespace": "default", "name": "data"} | claim_ref
    metadata = {"name": "pv", "uid": uid, "resourceVersion": "8", "labels": {"kept": "yes"}}
    return {"kind": "PersistentVolume", "metadata": metadata, "spec": asked, "status": {"phase": phase}}


def stored_claim(*, uid: str = "uid-data", node: str | None = None, volume_name: str = "") -> dict[str, Any]:
    """Return the claim as a GET gives it."""
    annotations = {"kept": "yes"} | ({} if node is None else {"volume.kubernetes.io/selected-node": node})
    metadata = {"name": "data", "namespace": "default", "uid": uid, "resourceVersion": "8", "annotations": annotations}
    return {"metadata": metadata, "spec": {"volumeName": volume_name}}


async def keep(*script: Answer, may_send: bool = True) -> tuple[WriteOutcome, Scripted]:
    """Keep the volume for the claim."""
    async with scripted(*script) as (server, client):
        outcome = await VolumeWriter(client=client, may_send=lambda: may_send, timeout=4.0).keep(VOLUME, CLAIM)
    assert not server.script
    return outcome, server


async def select(*script: Answer) -> tuple[WriteOutcome, Scripted]:
    """Select a node for the claim."""
    async with scripted(*script) as (server, client):
        outcome = await VolumeWriter(client=client, may_send=lambda: True, timeout=4.0).select_node(CLAIM, "n")
    assert not server.script
    return outcome, server


async def test_a_volume_is_kept() -> None:
    """The object is written back as it was read, with the claim in it, as the volume controller would."""
    outcome, server = await keep(answer(stored_volume()), KEPT)
    assert outcome == Written("9")
    read, written = server.seen
    assert (read.method, written.method, written.path) == ("GET", "PUT", "/api/v1/persistentvolumes/pv")
    want = stored_volume()
    want["metadata"]["annotations"] = {"pv.kubernetes.io/bound-by-controller": "yes"}
    want["spec"]["claimRef"] = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": "default",
        "name": "data",
        "uid": "uid-data",
        "resourceVersion": "5",
    }
    assert written.json == want


async def test_a_volume_that_its_owner_keeps_for_the_claim() -> None:
    """The owner of the volume has written the claim's name; only the uid is added."""
    outcome, server = await keep(answer(stored_volume(claim_ref={})), KEPT)
    assert outcome == Written("9")
    assert server.seen[1].json["spec"]["claimRef"]["uid"] == "uid-data"
    assert "annotations" not in server.seen[1].json["metadata"]


# Deeper than any Python lets the decoder go.
MANAGED = {"deep": "[" * 200_000 + "]" * 200_000, "flat": '[{"manager": "kubectl"}]'}


@pytest.mark.parametrize("sentence", MANAGED)
async def test_managed_fields(sentence: str) -> None:
    """However deep they are, the object is written without them: the API server then keeps those that it has."""
    read, written = (
        answer(json.dumps(item).replace('"metadata": {', f'"metadata": {{"managedFields": {MANAGED[sentence]}, ', 1))
        for item in (stored_claim(), AFTER | {"kind": "PersistentVolumeClaim"})
    )
    outcome, server = await select(read, written)
    assert outcome == Written("9")
    assert server.seen[1].json == stored_claim(node="n")


async def test_a_node_is_selected() -> None:
    """An annotation is added to the existing ones."""
    outcome, server = await select(answer(stored_claim()), SELECTED)
    assert outcome == Written("9")
    assert server.seen[1].method == "PUT"
    assert server.seen[1].json == stored_claim(node="n")


@pytest.mark.parametrize("script", [[answer(stored_volume(claim_ref={"uid": "uid-data"}, phase="Bound"))]])
async def test_a_volume_that_is_kept_already(script: list[Answer]) -> None:
    """A repeated write finds the work done, and writes nothing."""
    assert (await keep(*script))[0] == Written("8")


async def test_a_node_that_is_selected_already() -> None:
    """A repeated write finds the work done, also if the volume exists by now."""
    assert (await select(answer(stored_claim(node="n", volume_name="made"))))[0] == Written("8")


FAILING: dict[str, tuple[list[Answer], str]] = {
    "kept for another": ([answer(stored_volume(claim_ref={"name": "other", "uid": "u"}))], GONE),
    "kept for a claim of the same name": ([answer(stored_volume(claim_ref={"uid": "old"}))], GONE),
    "another volume of the name": ([answer(stored_volume(uid="new"))], GONE),
    "released": ([answer(stored_volume(phase="Released"))], GONE),
    "unreadable": ([answer(stored_volume(capacity="all"))], GONE),
    "deleted": ([refuse(404, "NotFound", "not found")], "not found"),
    "changed while it was written": (
        [answer(stored_volume()), refuse(409, "Conflict", "was modified")],
        "was modified",
    ),
}


@pytest.mark.parametrize("sentence", FAILING)
async def test_what_no_longer_stands(sentence: str) -> None:
    """The pod needs another decision."""
    script, want = FAILING[sentence]
    assert (await keep(*script))[0] == Failed(want)


@pytest.mark.parametrize(
    "claim", [stored_claim(uid="new"), stored_claim(node="other"), stored_claim(volume_name="pv"), {"metadata": 1}]
)
async def test_a_claim_that_has_changed(claim: Any) -> None:
    """It was bound by another, has another node, or was recreated."""
    assert (await select(answer(claim)))[0] == Failed(CHANGED)


@pytest.mark.parametrize("lost", [reset, answer("<html/>", status=502)], ids=["reset", "page"])
async def test_an_answer_that_is_lost(lost: Answer) -> None:
    """It is not sent again here: the next attempt reads the outcome."""
    outcome, _ = await keep(answer(stored_volume()), lost)
    assert isinstance(outcome, Failed)


async def test_a_short_timeout_bounds_the_write() -> None:
    """A write that is not answered within the writer's timeout fails; no other limit applies."""
    async with scripted(answer(stored_volume()), hang, impatient=True) as (server, client):
        writer = VolumeWriter(client=client, may_send=lambda: True, timeout=0.25)
        with anyio.fail_after(PATIENCE):
            outcome = await writer.keep(VOLUME, CLAIM)
    assert server.limits[-1] == 0.25
    assert outcome == Failed("no answer in time to PUT /api/v1/persistentvolumes/pv")
    assert len(server.seen) == 2


async def test_a_replica_that_may_not_write() -> None:
    """Nothing is sent."""
    outcome, server = await keep(answer(stored_volume()), may_send=False)
    assert outcome == HeldBack()
    assert len(server.seen) == 1
