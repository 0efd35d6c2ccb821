"""VolumeBinding: where the volumes are, or can be made."""

from typing import Any

import attrs
import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.model.node import Node
from neuron_scheduler.model.selectors import LabelSelector, NodeSelectorTerm, Operator, Requirement
from neuron_scheduler.model.volumes import ClaimRef, CSIDriver, CSINode
from neuron_scheduler.scheduling.cycle.volume_plan import volume_plan
from neuron_scheduler.scheduling.plugins import static_volumes, volume_binding
from tests.support.builders import GI, pod
from tests.support.harness import refusal, schedule
from tests.support.storage import MADE, claim, host, room, stored, volume, zone, zoned

NODES = zoned(a="x", b="x", c="y")
NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
P = pod(volume_claims=("data",))
EPHEMERAL = pod(volume_claims=("p-tmp",), ephemeral_claims=("p-tmp",))
COUNTED = CSIDriver("uid-ebs", "ebs.csi.aws.com", storage_capacity=True)


PLACED: dict[str, tuple[list[Any], str]] = {
    "a volume kept for the claim is the only one": (
        [claim(), volume("first", on=host("a")), volume("kept", of="data", on=host("c"))],
        "c",
    ),
    "a volume kept by name, without a uid": (
        [claim(), volume(on=host("b"), claim=ClaimRef("default/data"))],
        "b",
    ),
    "where the driver says it has room": (
        [
            COUNTED,
            claim(class_name="gp3", request=2 * GI),
            room("x", GI, on=zone("x")),
            room("y", 2 * GI, on=zone("y")),
        ],
        "c",
    ),
    "room where two labels say so": (
        [
            COUNTED,
            claim(class_name="gp3"),
            room("c", GI, on=(NodeSelectorTerm((*zone("y")[0].expressions, *host("c")[0].expressions)),)),
        ],
        "c",
    ),
    "room on all nodes": ([COUNTED, claim(class_name="gp3"), room("all", GI)], "a"),
    "a driver that does not tell its room has enough": (
        [CSIDriver("uid-ebs", "ebs.csi.aws.com"), claim(class_name="gp3")],
        "a",
    ),
    "selectors choose among volumes": (
        [
            claim(selector=LabelSelector((Requirement("disk", Operator.IN, ("ssd",)),))),
            volume("hdd", on=host("a")),
            volume("ssd", on=host("b"), labels={"disk": "ssd"}),
        ],
        "b",
    ),
    "an in-tree volume, in the driver's labels": (
        [
            claim(bound_to="pv"),
            volume(of="data", on=zone("nowhere"), csi_terms=zone("y"), plugin="kubernetes.io/aws-ebs"),
            CSINode("uid-c", "c", migrated=frozenset({"kubernetes.io/aws-ebs"})),
        ],
        "c",
    ),
}


@pytest.mark.parametrize("sentence", PLACED)
def test_placed(sentence: str) -> None:
    """The pod goes to the first node that its volumes allow."""
    storage, want = PLACED[sentence]
    assert schedule(stored(NODES, *storage), P) == (want, ())


ALL = "0/3 nodes are available: 3 "
REFUSED: dict[str, tuple[list[Any], str]] = {
    "another mode": ([claim(), volume(volume_mode="Block")], f"{ALL}{BIND_CONFLICT}."),
    "not available": ([claim(), volume(available=False)], f"{ALL}{BIND_CONFLICT}."),
    "other access modes": ([claim(access_modes=("ReadWriteMany",)), volume()], f"{ALL}{BIND_CONFLICT}."),
    "other attributes": ([claim(attributes_class="gold"), volume()], f"{ALL}{BIND_CONFLICT}."),
    "kept for a claim of this name that is gone": (
        [claim(), volume(claim=ClaimRef("default/data", "uid-old"))],
        f"{ALL}{BIND_CONFLICT}.",
    ),
    "no room": ([COUNTED, claim(class_name="gp3", request=2 * GI), room("all", GI)], f"{ALL}{NO_SPACE}."),
    "room unknown": ([COUNTED, claim(class_name="gp3"), room("all", None)], f"{ALL}{NO_SPACE}."),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refused(sentence: str) -> None:
    """Nodes without a volume are refused in kube-scheduler's words, and a new node may help."""
    storage, want = REFUSED[sentence]
    fit_error = refusal(stored(NODES, *storage), P)
    assert fit_error.text == want
    assert fit_error.plugins == {"VolumeBinding"}
    assert not fit_error.new_node_cannot_help


HOPELESS: dict[str, tuple[list[Any], Any, str]] = {
    "a claim that is not there": ([], P, 'persistentvolumeclaim "data" not found'),
    "an ephemeral claim that is not there yet": (
        [],
        EPHEMERAL,
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"',
    ),
    "a lost volume": (
        [claim(bound_to="pv", lost=True)],
        P,
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
    ),
    "being deleted": ([claim(terminating=True)], P, 'persistentvolumeclaim "data" is being deleted'),
    "somebody else's ephemeral claim": (
        [claim("p-tmp", owner="uid-other")],
        EPHEMERAL,
        "PVC default/p-tmp was not created for pod default/p (pod is not owner)",
    ),
    "an immediate class": ([claim(class_name="efs")], P, "pod has unbound immediate PersistentVolumeClaims"),
    "a class that is not there": ([claim(class_name="none")], P, "pod has unbound immediate PersistentVolumeClaims"),
    "on its way to a volume": (
        [claim(bound_to="pv", bind_completed=False), volume()],
        P,
        "pod has unbound immediate PersistentVolumeClaims",
    ),
}


@pytest.mark.parametrize("sentence", HOPELESS)
def test_no_node_helps(sentence: str) -> None:
    """What is wrong with the claim itself refuses the pod, and no autoscaler is asked."""
    storage, refused, want = HOPELESS[sentence]
    fit_error = refusal(stored(NODES, *storage), refused)
    assert (fit_error.text, fit_error.new_node_cannot_help) == (f"0/3 nodes are available: {want}.", True)


def test_an_ephemeral_claim_of_the_pod_itself() -> None:
    """The controller's claim is owned by the pod."""
    storage = [claim("p-tmp", class_name="gp3", owner="uid-p")]
    assert schedule(stored(NODES, *storage), EPHEMERAL) == ("a", ())


def test_a_volume_that_is_gone() -> None:
    """Of an ephemeral claim, whose volume no other plugin looks at, the nodes are refused for it."""
    storage = [claim("p-tmp", owner="uid-p", bound_to="pv")]
    want = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    assert refusal(stored(NODES, *storage), EPHEMERAL).text == f"{ALL}{want}."


def test_all_reasons_of_a_node_are_told() -> None:
    """A node may have the wrong zone for one claim, and no volume for another."""
    storage: list[Any] = [
        claim("one", bound_to="pv"),
        volume(of="one", on=zone("y")),
        claim("two"),
        volume("v", on=host("a")),
    ]
    fit_error = refusal(stored(NODES, *storage), pod(volume_claims=("one", "two")))
    assert dict(fit_error.reasons) == {NODE_CONFLICT: 2, BIND_CONFLICT: 2}


def competing(*sizes: int, on: dict[str, list[int]]) -> tuple[Cluster, list[Node]]:
    """Return a cluster with claims of these sizes in Gi, and volumes of these sizes on some nodes."""
    claims = [claim(f"c{i}", request=size * GI) for i, size in enumerate(sizes)]
    volumes = [
        volume(f"{name}-{i}", on=host(name), capacity=size * GI)
        for name, have in on.items()
        for i, size in enumerate(have)
    ]
    return stored(NODES, *claims, *volumes), NODES


def test_claims_compete_for_volumes() -> None:
    """The smallest claim gets the smallest volume, so that the larger one may still find its own."""
    cluster, _ = competing(5, 1, on={"a": [5], "b": [2, 2], "c": [9, 4, 7]})
    two = pod(volume_claims=("c0", "c1"))
    assert schedule(cluster, two) == ("c", ())
    plan = volume_plan(cluster, two, "c")
    assert plan is not None
    assert [(k.claim.name, k.volume.name, k.volume.claim) for k in plan.keep] == [
        ("c1", "c-1", ClaimRef("default/c1", "uid-c1")),
        ("c0", "c-2", ClaimRef("default/c0", "uid-c0")),
    ]


def test_a_claim_without_a_volume_gets_one_made() -> None:
    """Of a class with both, what is there is taken first, and the node selected for the rest."""
    there = volume(class_name="gp3", on=host("c"))
    cluster = stored(NODES, claim("one", class_name="gp3"), claim("two", class_name="gp3", request=9 * GI), there)
    both = pod(volume_claims=("one", "two"))
    plan = volume_plan(cluster, both, "c")
    assert plan is not None
    assert [keeping.volume.name for keeping in plan.keep] == ["pv"]
    assert [(c.name, c.selected_node) for c in plan.provision] == [("two", "c")]
    assert schedule(cluster, both) == ("a", ())


def test_what_is_assumed_is_taken() -> None:
    """A volume that was decided on serves no other claim, until the decision is reverted or written."""
    cluster = stored(NODES, claim("one"), claim("two"), volume(on=host("a")))
    first, second = pod("first", volume_claims=("one",)), pod("second", volume_claims=("two",))
    plan = volume_plan(cluster, first, "a")
    assert plan is not None
    for decided in plan.assumed_objects:
        cluster.volumes.assume(decided)
    assert refusal(cluster, second).text == f"{ALL}{BIND_CONFLICT}."
    assert volume_plan(cluster, first, "a") is not None
    for decided in plan.assumed_objects:
        cluster.volumes.restore(decided)
    assert schedule(cluster, second) == ("a", ())


def test_a_new_version_ends_an_assumption() -> None:
    """What the API server says is newer than what was decided."""
    cluster = stored(NODES, claim(class_name="gp3"))
    cluster.volumes.assume(claim(class_name="gp3", selected_node="c"))
    assert schedule(cluster.fork(), P) == ("c", ())
    cluster.put_storage(claim(class_name="gp3"))
    assert schedule(cluster, P) == ("a", ())


def test_bound_claims_need_no_plan() -> None:
    """There is nothing to do for them."""
    assert volume_plan(stored(NODES, claim(bound_to="pv"), volume(of="data")), P, "a") is None


def test_without_the_class_nothing_is_made() -> None:
    """A class that goes away leaves its claims unbound."""
    cluster = stored(NODES, claim(class_name="gp3"))
    cluster.remove_storage(MADE)
    assert refusal(cluster, P).text == "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims."


def test_a_node_is_found_behind_many_that_have_a_volume_for_either_claim() -> None:
    """One claim wants any volume, the other one with a label: 200 nodes have one such volume, and the last has two."""
    names = [f"n{number:03}" for number in range(200)]
    volumes = [volume(f"pv-{name}", on=host(name), labels={"disk": "ssd"}) for name in names]
    ssd = LabelSelector((Requirement("disk", Operator.IN, ("ssd",)),))
    nodes, claims = zoned(**dict.fromkeys(names, "x")), (claim("log"), claim("data", selector=ssd))
    cluster = stored(nodes, *volumes, volume("more", on=host(names[-1])), *claims)
    assert schedule(cluster, pod(volume_claims=("log", "data")))[0] == names[-1]


def test_too_many_unlike_claims_are_refused_before_volumes_are_counted() -> None:
    """Each is counted on all nodes, with the values of its selector; equal ones are one, those without volumes none."""
    volumes = [volume(f"pv-{number}", on=host("a")) for number in range(60)]
    volumes += [volume(f"large-{size}", on=host("a"), capacity=size * GI) for size in range(2, 23)]
    equal, unlike = (
        [claim(f"e{number}") for number in range(60)],
        [claim(f"u{n}", request=n * GI) for n in range(2, 23)],
    )
    made = [claim(f"m{number}", class_name="gp3", request=number) for number in range(60)]
    selector = LabelSelector((Requirement("disk", Operator.IN, tuple(map(str, range(19)))),))
    cluster = stored(NODES, *volumes, *equal, *unlike, *made, claim("s", selector=selector))
    for number, few in enumerate(([*equal, *made], unlike[:20])):
        assert schedule(cluster, pod(f"few-{number}", volume_claims=tuple(each.name for each in few)))[0] == "a"
    for names in (tuple(each.name for each in unlike), ("s",)):
        assert refusal(cluster, pod(volume_claims=names)).text == f"0/3 nodes are available: {volume_binding.TOO_MANY}."


def test_claims_that_the_same_volumes_serve_are_counted_once() -> None:
    """They differ in bytes, or in the order and number of their access modes; whether a node is selected or not."""
    claims = [claim(f"u{n}", class_name="gp3", request=n, access_modes=("ReadWriteOnce",) * n) for n in range(1, 60)]
    made = [*claims, *[attrs.evolve(each, name=f"s{each.name}", selected_node="a") for each in claims]]
    cluster = stored(
        NODES, COUNTED, *made, volume(class_name="gp3"), *[room(str(n), n, on=host("a")) for n in range(80)]
    )
    asking = pod(volume_claims=tuple(each.name for each in made))
    assert schedule(cluster.fork(), asking)[0] == "a"
    asked = cluster.view.index_requests(lambda view: volume_binding.filter_nodes(view, asking, view.live)).lacking
    assert len(asked) == 2  # of the volumes and of the room


def test_claims_of_all_sizes_ask_for_one_column_of_room() -> None:
    """Many waiting pods, each of its own size, would count all nodes anew whenever the room of one changes."""
    claims = [claim(f"c{size}", class_name="gp3", request=size) for size in range(1, 6)]
    rooms = [room("a", 1, on=host("a")), room("b", 3, on=host("b")), room("c", 2, on=host("c"))]
    cluster = stored(NODES, COUNTED, *claims, *rooms, room("unknown", None), room("c2", 4, on=host("c")))
    asking = [pod(each.name, volume_claims=(each.name,)) for each in claims]
    assert [schedule(cluster, each)[0] for each in asking[:4]] == ["a", "b", "b", "c"]
    assert refusal(cluster, asking[4]).text == f"{ALL}{NO_SPACE}."
    cluster.put_storage(room("c2", 6, on=host("c")))
    asked = cluster.view.index_requests(lambda view: volume_binding.filter_nodes(view, asking[4], view.live))
    assert not asked.lacking
    assert schedule(cluster, asking[4])[0] == "c"


def test_nodes_with_too_few_volumes_are_not_tried_if_none_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying takes long, and it does not matter which of the claims lacks a volume."""
    monkeypatch.delattr(static_volumes, "_choose_volumes")
    other = LabelSelector((Requirement("disk", Operator.DOES_NOT_EXIST),))
    cluster = stored(NODES, volume(), claim(), claim("other", selector=other))
    assert refusal(cluster, pod(volume_claims=("data", "other"))).text == f"0/3 nodes are available: 3 {BIND_CONFLICT}."


def test_evictions_may_help_on_a_node_that_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod would wait for volumes while the only node with disks for it comes free."""
    monkeypatch.setattr(static_volumes, "_MOST_TRIED", 20)  # one node
    ssd = LabelSelector((Requirement("disk", Operator.IN, ("ssd",)),))
    disks = [
        volume(f"{disk}-{name}", on=host(name), capacity=size * GI, labels={"disk": disk})
        for name, sizes in (("a", (2, 4)), ("b", (4, 2)))
        for disk, size in zip(("ssd", "hdd"), sizes, strict=True)
    ]
    cluster = stored(NODES, *disks, claim("log", request=GI), claim("data", request=2 * GI, selector=ssd))
    asking = pod(volume_claims=("log", "data"))
    found = volume_binding.filter_nodes(cluster.view, asking, cluster.view.live)
    [untried] = [refusal.nodes for refusal in found if refusal.nodes and not refusal.unresolvable]
    assert [row.node.name for row in cluster.view.rows_of(untried)] == ["b"]
    assert not any(refusal.nodes for refusal in volume_binding.filter_nodes(cluster.view, asking, untried))


def test_a_label_of_a_claim_or_volume_changes_no_row() -> None:
    """A tenant may change labels without end, and thousands of pods may share a claim."""
    bound, pv = claim(bound_to="pv"), volume(of="data", driver="d", handle="h")
    cluster = stored(NODES, bound, pv, pods=[pod("p", on="a", volume_claims=("data",))])
    before = cluster.view.changes
    for change in (attrs.evolve(bound, resource_version="2"), attrs.evolve(pv, labels={"a": "b"})):
        cluster.put_storage(change)
    assert cluster.view.changes == before
    cluster.put_storage(attrs.evolve(pv, handle="i"))
    assert cluster.view.changes > before
