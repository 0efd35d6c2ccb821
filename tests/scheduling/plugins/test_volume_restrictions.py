"""VolumeRestrictions: what cannot be shared."""

import attrs
import pytest

from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.volumes import InlineVolume
from tests.support.builders import node, pod
from tests.support.harness import refusal, schedule
from tests.support.storage import claim, stored, volume

NODES = [node("a", created=0), node("b", created=1)]
ONE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
MINE = claim(bound_to="pv", access_modes=("ReadWriteOncePod",))
P = pod(volume_claims=("data",))


def test_one_pod_has_the_claim() -> None:
    """All nodes are refused; a new node does not help, but the end of the pod that uses it does."""
    cluster = stored(NODES, MINE, volume(of="data"))
    cluster.put_pod(pod("holder", on="b", volume_claims=("data",)))
    fit_error = refusal(cluster, P)
    assert fit_error.text == f"0/2 nodes are available: 2 {ONE_POD}."
    assert fit_error.plugins == {"VolumeRestrictions"}
    assert fit_error.new_node_cannot_help
    cluster.remove_pod("uid-holder")
    assert schedule(cluster, P) == ("a", ())


def test_the_holder_keeps_the_claim_when_its_node_turns_out_to_be_another_machine() -> None:
    """Its Neuron usage is read again then, as when a device plugin starts; its volumes stay the same."""
    cluster = stored(NODES, MINE, volume(of="data"))
    cluster.put_pod(pod("holder", on="b", volume_claims=("data",)))
    cluster.put_node(node("b", "trn1.32xlarge", created=1))
    assert refusal(cluster, P).reasons == ((ONE_POD, 2),)


def test_an_assumed_pod_has_the_claim() -> None:
    """From the decision on, before the server says so."""
    cluster = stored(NODES, MINE, volume(of="data"))
    assert schedule(cluster, P) == ("a", ())
    assert refusal(cluster, pod("q", volume_claims=("data",))).reasons == ((ONE_POD, 2),)


def test_other_namespaces_and_modes_share() -> None:
    """Only this claim, and only this access mode."""
    cluster = stored(NODES, claim(bound_to="pv"), volume(of="data"))
    cluster.put_pod(pod("holder", on="b", volume_claims=("data",)))
    assert schedule(cluster, P) == ("a", ())
    cluster.put_storage(MINE)
    cluster.remove_pod("uid-holder")
    cluster.put_pod(pod("stranger", on="b", namespace="other", volume_claims=("data",)))
    assert refusal(cluster, pod("q", volume_claims=("data",))).reasons == ((ONE_POD, 2),)  # P has it


def test_the_pod_of_a_claim_may_be_nominated() -> None:
    """The only pod of a claim has a nomination: no other pod of the claim gets its node."""
    cluster = stored(NODES[:1], MINE, volume(of="data"))
    cluster.nominate("a", Nomination(pod("coming", priority=5, volume_claims=("data",))))
    assert refusal(cluster, attrs.evolve(P, priority=5)).reasons == ((ONE_POD, 1),)


def ebs(handle: str) -> InlineVolume:
    return InlineVolume("kubernetes.io/aws-ebs", "ebs.csi.aws.com", handle)


@pytest.mark.parametrize(
    ("there", "asked", "want"),
    [
        pytest.param(ebs("v"), ebs("v"), "b", id="an EBS disk is never shared"),
        pytest.param(ebs("v"), ebs("w"), "a", id="another EBS disk"),
    ],
)
def test_disks(there: InlineVolume, asked: InlineVolume, want: str) -> None:
    """Two pods of one node share a disk only if kube-scheduler lets them."""
    cluster = stored(NODES, pods=[pod("holder", on="a", disks=(there,))])
    assert schedule(cluster, pod(disks=(asked,))) == (want, ())


def test_no_disk_left() -> None:
    """The reason is kube-scheduler's, and the holder may leave."""
    cluster = stored(NODES[:1], pods=[pod("holder", on="a", disks=(ebs("v"),))])
    fit_error = refusal(cluster, pod(disks=(ebs("v"),)))
    assert fit_error.text == "0/1 nodes are available: 1 node(s) had no available disk."
    assert not fit_error.new_node_cannot_help
