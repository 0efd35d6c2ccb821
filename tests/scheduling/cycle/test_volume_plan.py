"""Volumes as sets of nodes give what kube-scheduler's loop over nodes gives, whatever claims and volumes there are."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from neuron_scheduler.model.node import Node
from neuron_scheduler.model.volumes import PersistentVolume, PersistentVolumeClaim, Storage, StorageClass
from neuron_scheduler.scheduling.cycle.schedule_pod import Decision
from neuron_scheduler.scheduling.cycle.volume_plan import volume_plan
from tests.support.builders import GI, pod
from tests.support.harness import decide
from tests.support.storage import CLASSES, claim, host, stored, volume, zone, zoned
from tests.support.thoroughness import examples

NODES = zoned(a="x", b="x", c="y", d="y", e="z")
NAMES = ("c0", "c1", "c2")
IN_X = StorageClass("uid-in-x", "in-x", "ebs.csi.aws.com", waits=True, allowed_topologies=zone("x"))
USED = {used.name: used for used in (*CLASSES, IN_X) if isinstance(used, StorageClass)}

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"


def some_storage(dice: Random) -> tuple[list[PersistentVolumeClaim], list[PersistentVolume]]:
    """Return three claims, some of them bound, and a few volumes."""
    volumes = [
        volume(
            f"pv{i}",
            on=dice.choice([None, zone(dice.choice("xyz")), host(*dice.sample("abcde", 2))]),
            class_name=dice.choice(["local", "local", "gp3", "in-x"]),
            capacity=dice.randint(1, 4) * GI,
            of=dice.choice(["", "", "", "", *NAMES]),
            terminating=dice.random() < 0.1,
        )
        for i in range(dice.randint(0, 6))
    ]
    claims = []
    for name in NAMES:
        mine = [v for v in volumes if v.claim is not None and v.claim.key == f"default/{name}"]
        if mine and dice.random() < 0.5:
            claims.append(claim(name, bound_to=mine[0].name, class_name=mine[0].class_name))
            continue
        class_name = dice.choice(["local", "local", "gp3", "in-x"])
        selected = dice.choice("abcde") if class_name != "local" and dice.random() < 0.3 else None
        claims.append(claim(name, class_name=class_name, request=dice.randint(1, 3) * GI, selected_node=selected))
    return claims, volumes


def mounts(volume: PersistentVolume, node: Node) -> bool:
    """Return whether a node matches a volume's affinity."""
    terms = volume.required_terms
    return terms is None or any(term.matches(node.labels, node.name) for term in terms)


def obvious(
    claims: Sequence[PersistentVolumeClaim], volumes: Sequence[PersistentVolume], node: Node
) -> tuple[list[str], dict[str, str]]:
    """Return a node's reasons against the claims, and the volume that each unbound claim gets (`FindPodVolumes`)."""
    reasons, chosen = [], dict[str, str]()
    by_name = {v.name: v for v in volumes}
    if not all(mounts(by_name[c.volume_name], node) for c in claims if c.is_fully_bound):
        reasons.append(NODE_CONFLICT)
    free = [c for c in claims if not c.is_fully_bound]
    if any(c.selected_node not in (None, node.name) for c in free):
        return [*reasons, BIND_CONFLICT], {}
    provisioned = [c for c in free if c.selected_node is not None]
    for unbound in sorted((c for c in free if c.selected_node is None), key=lambda c: c.request):
        volume = best(unbound, [v for v in volumes if v.name not in chosen.values()], node)
        if volume is None:
            provisioned.append(unbound)
        else:
            chosen[unbound.name] = volume.name
    for unbound in provisioned:
        made = USED[unbound.class_name]
        allowed = made.allowed_topologies
        if made.provisioner.endswith("no-provisioner") or (
            allowed is not None and not any(term.matches(node.labels, node.name) for term in allowed)
        ):
            return [*reasons, BIND_CONFLICT], {}
    return reasons, chosen


def best(wanted: PersistentVolumeClaim, volumes: Sequence[PersistentVolume], node: Node) -> PersistentVolume | None:
    """Return the volume that a claim gets on a node, of those that are left (`FindMatchingVolume`)."""
    serving = sorted((v for v in volumes if v.may_serve(wanted)), key=lambda v: (v.capacity, v.name))
    kept = sorted((v for v in serving if v.claim is not None), key=lambda v: v.name)
    if kept:
        return kept[0] if mounts(kept[0], node) else None
    return next((v for v in serving if mounts(v, node)), None)


@pytest.mark.parametrize("seed", range(examples(400)))
def test_sets_and_loops_agree(seed: int) -> None:
    """The counts of reasons, or the node and the volume of each claim, are those of a loop over nodes."""
    claims, volumes = some_storage(Random(seed))
    storage: list[Storage] = [IN_X, *claims, *volumes]
    cluster, wanting = stored(NODES, *storage), pod(volume_claims=NAMES)
    wanted = {node.name: obvious(claims, volumes, node) for node in NODES}
    counts = Counter(reason for reasons, _ in wanted.values() for reason in reasons)
    result = decide(cluster, wanting)
    if isinstance(result, Decision):
        assert result.feasible == sum(not reasons for reasons, _ in wanted.values())
        plan = volume_plan(cluster, wanting, result.node_name)
        kept = {keeping.claim.name: keeping.volume.name for keeping in plan.keep} if plan is not None else {}
        assert kept == wanted[result.node_name][1]
    else:
        assert dict(result.reasons) == dict(counts)
