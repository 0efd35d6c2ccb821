"""VolumeZone: old volumes, which tell their zone in labels."""

import attrs
import pytest

from neuron_scheduler.model.node import ZONE_LABEL
from tests.support.builders import node, pod
from tests.support.harness import refusal, schedule
from tests.support.storage import claim, stored, volume

BETA = "failure-domain.beta.kubernetes.io/zone"
NODES = [
    node("plain-a", created=0, labels={ZONE_LABEL: "a"}),
    node("plain-b", created=1, labels={ZONE_LABEL: "b"}),
    node("old-c", created=2, labels={BETA: "c"}),
    node("nowhere", created=3),
]
P = pod(volume_claims=("data",))
REASON = "node(s) had no available volume zone"

FITTING: dict[str, tuple[dict[str, str], int]] = {
    "no labels": ({}, 4),
    "a zone, and nodes that tell none": ({ZONE_LABEL: "b"}, 2),
    "several zones": ({ZONE_LABEL: "a__b"}, 3),
    "an old label against today's": ({BETA: "a"}, 2),
    "an old label against the old one": ({BETA: "c"}, 2),
    "today's label against an old one": ({ZONE_LABEL: "c"}, 1),
    "a region no node tells": ({"topology.kubernetes.io/region": "r"}, 1),
    "a label that cannot be read": ({ZONE_LABEL: "a____b"}, 4),
}


@pytest.mark.parametrize("sentence", FITTING)
def test_zones(sentence: str) -> None:
    """Nodes of other zones are refused, and so are those that tell another label only."""
    labels, fitting = FITTING[sentence]
    cluster = stored(NODES, claim(bound_to="pv"), volume(of="data", labels=labels))
    cluster.remove_node("nowhere")
    counted = 4 - fitting
    if counted == 3:
        assert refusal(cluster, P).text == f"0/3 nodes are available: 3 {REASON}."
    else:
        assert not isinstance(schedule(cluster, P), str)


def test_the_node_that_fits() -> None:
    """The first node of the zone is taken."""
    cluster = stored(NODES, claim(bound_to="pv"), volume(of="data", labels={ZONE_LABEL: "b"}))
    assert schedule(cluster, P) == ("plain-b", ())


def test_nothing_evicted_helps() -> None:
    """The zone of a volume does not change by anybody leaving; a new node may be in it."""
    fit_error = refusal(stored(NODES[:2], claim(bound_to="pv"), volume(of="data", labels={ZONE_LABEL: "z"})), P)
    assert fit_error.text == f"0/2 nodes are available: 2 {REASON}."
    assert fit_error.plugins == {"VolumeZone"}
    assert not fit_error.new_node_cannot_help


def test_a_volume_that_is_gone() -> None:
    """A claim bound to nothing refuses the pod."""
    fit_error = refusal(stored(NODES, claim(bound_to="pv")), P)
    assert fit_error.text == '0/4 nodes are available: persistentvolume "pv" not found.'
    assert fit_error.new_node_cannot_help


def test_ephemeral_claims_are_not_asked() -> None:
    """As upstream, only claims that the pod names."""
    cluster = stored(NODES, claim("p-x", bound_to="pv", owner="uid-p"), volume(of="p-x", labels={ZONE_LABEL: "b"}))
    mine = attrs.evolve(P, constraints=pod(volume_claims=("p-x",), ephemeral_claims=("p-x",)).constraints)
    assert schedule(cluster, mine) == ("plain-a", ())
