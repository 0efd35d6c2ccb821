"""NodeVolumeLimits: how many volumes a driver attaches."""

from typing import Any

import pytest

from neuron_scheduler.cluster.cluster import Cluster
from neuron_scheduler.cluster.rows.node_info import Nomination
from neuron_scheduler.model.volumes import CSIDriver, CSINode, InlineVolume, StorageClass, VolumeAttachment
from tests.support.builders import node, pod
from tests.support.harness import refusal, schedule
from tests.support.storage import MADE, claim, stored, volume

EBS = "ebs.csi.aws.com"
PLUGIN = "kubernetes.io/aws-ebs"
REASON = "node(s) exceed max volume count"
IN_TREE = StorageClass("uid-gp2", "gp2", PLUGIN, waits=True)


def limited(count: int, *, migrated: bool = True, name: str = "n") -> CSINode:
    """Return what the EBS driver says of a node."""
    return CSINode(f"uid-{name}", name, {EBS: count}, frozenset({PLUGIN}) if migrated else frozenset())


def bound(*names: str) -> list[Any]:
    """Return claims that are bound to EBS volumes of the same names."""
    return [
        stored_object
        for name in names
        for stored_object in (
            claim(name, bound_to=f"pv-{name}"),
            volume(f"pv-{name}", of=name, driver=EBS, handle=f"vol-{name}"),
        )
    ]


def attached(name: str, to: str = "n") -> VolumeAttachment:
    """Return the attachment of the volume of a claim."""
    return VolumeAttachment(f"uid-va-{name}", f"va-{name}", to, EBS, f"pv-{name}")


def uses(cluster: Cluster, *claims: str, name: str = "other", **rest: Any) -> Cluster:
    """Let a pod on the node use claims."""
    cluster.put_pod(pod(name, on="n", volume_claims=claims, **rest))
    return cluster


DISK = InlineVolume(PLUGIN, EBS, "vol-inline")
REQUIRED = CSIDriver("uid-ebs", EBS, required=True)
MISSING = f"{EBS} CSI driver is not installed on the node"
EFS_ONLY = CSINode("uid-n", "n", drivers=frozenset({"efs.csi.aws.com"}))
INSTALLED = CSINode("uid-n", "n", drivers=frozenset({EBS}))
CASES: dict[str, tuple[list[Any], dict[str, Any], bool]] = {
    "one of one": ([limited(1), *bound("x")], {"volume_claims": ("x",)}, True),
    "two of one": ([limited(1), *bound("x", "y")], {"volume_claims": ("x", "y")}, False),
    "no limit": ([*bound("x", "y")], {"volume_claims": ("x", "y")}, True),
    "a limit of another driver": (
        [CSINode("uid-n", "n", {"efs.csi.aws.com": 0}), *bound("x")],
        {"volume_claims": ("x",)},
        True,
    ),
    "a limit of none": ([limited(0), *bound("x")], {"volume_claims": ("x",)}, False),
    "an attachment that no pod uses takes room": (
        [limited(1), *bound("x", "old"), attached("old")],
        {"volume_claims": ("x",)},
        False,
    ),
    "an attachment of the node next door": (
        [limited(1), *bound("x", "old"), attached("old", to="m")],
        {"volume_claims": ("x",)},
        True,
    ),
    "a volume that will be made": ([limited(0), claim("x", class_name="gp3")], {"volume_claims": ("x",)}, False),
    "a volume that an in-tree class makes": (
        [limited(0), IN_TREE, claim("x", class_name="gp2")],
        {"volume_claims": ("x",)},
        False,
    ),
    "an inline disk": ([limited(0)], {"disks": (DISK,)}, False),
    "an inline disk of a node that says nothing about migration": (
        [limited(0, migrated=False)],
        {"disks": (DISK,)},
        False,
    ),
    "a volume of no driver": (
        [limited(0), claim("x", bound_to="pv"), volume("pv", of="x")],
        {"volume_claims": ("x",)},
        True,
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_an_empty_node(sentence: str) -> None:
    """What the pod brings must fit the limit."""
    storage, asked, fits = CASES[sentence]
    cluster = stored([node("n")], *storage)
    if fits:
        assert schedule(cluster, pod(**asked)) == ("n", ())
    else:
        assert refusal(cluster, pod(**asked)).text == f"0/1 nodes are available: 1 {REASON}."


@pytest.mark.parametrize(
    ("storage", "fits"),
    [
        pytest.param([REQUIRED], False, id="no CSINode"),
        pytest.param([REQUIRED, EFS_ONLY], False, id="another driver"),
        pytest.param([REQUIRED, INSTALLED], True, id="installed, without a limit"),
        pytest.param([CSIDriver("uid-ebs", EBS), EFS_ONLY], True, id="the driver does not insist"),
        pytest.param([EFS_ONLY], True, id="no CSIDriver: perhaps it is no CSI driver"),
    ],
)
@pytest.mark.parametrize("claims", [bound("x"), [claim("x", class_name="gp3")]], ids=["bound", "to be made"])
def test_a_driver_that_is_not_installed(storage: list[Any], claims: list[Any], fits: bool) -> None:
    """A CSIDriver may keep pods with its volumes off nodes without it (preventPodSchedulingIfMissing)."""
    cluster = stored([node("n")], *claims, *storage)
    assert schedule(cluster.fork(), pod("other")) == ("n", ())
    if fits:
        assert schedule(cluster, pod(volume_claims=("x",))) == ("n", ())
    else:
        fit_error = refusal(cluster, pod(volume_claims=("x",)))
        assert fit_error.text == f"0/1 nodes are available: 1 {MISSING}."
        assert fit_error.plugins == {"NodeVolumeLimits"}
        assert not fit_error.new_node_cannot_help


def test_a_driver_that_is_gone_asks_for_nothing() -> None:
    """With the CSIDriver its demand goes; what it attaches counts as before."""
    cluster = stored([node("n")], *bound("x"), REQUIRED)
    wanting = pod(volume_claims=("x",))
    assert refusal(cluster, wanting).reasons == ((MISSING, 1),)
    cluster.remove_storage(REQUIRED)
    assert schedule(cluster.fork(), wanting) == ("n", ())
    cluster.put_storage(limited(0))
    assert refusal(cluster, wanting).reasons == ((REASON, 1),)


def test_volumes_of_other_pods() -> None:
    """Each volume counts once, whoever uses it; what is there already needs no room."""
    cluster = uses(stored([node("n")], limited(2), *bound("x", "y", "z")), "x", "y")
    assert refusal(cluster, pod(volume_claims=("z",))).reasons == ((REASON, 1),)
    assert refusal(cluster, pod(volume_claims=("x", "z"))).plugins == {"NodeVolumeLimits"}
    assert schedule(cluster, pod("sharing", volume_claims=("x", "y"))) == ("n", ())
    cluster.remove_pod("uid-sharing")
    cluster.remove_pod("uid-other")
    assert schedule(cluster, pod(volume_claims=("x", "z"))) == ("n", ())


def test_some_are_there() -> None:
    """Two of three volumes are there, and room for the third is enough."""
    cluster = uses(stored([node("n")], limited(3), *bound("x", "y", "z")), "x", "y")
    assert schedule(cluster, pod(volume_claims=("x", "y", "z"))) == ("n", ())


def test_an_attachment_of_a_used_volume_counts_once() -> None:
    """Attachment and pod mean the same volume."""
    cluster = uses(stored([node("n")], limited(2), *bound("x", "y"), attached("x")), "x")
    assert schedule(cluster, pod(volume_claims=("y",))) == ("n", ())


def test_changes_are_followed() -> None:
    """Limits, attachments, volumes and claims may change under a pod."""
    cluster = uses(stored([node("n")], limited(1), *bound("y")), "x")
    wanting = pod(volume_claims=("y",))
    assert schedule(cluster.fork(), wanting) == ("n", ())  # the other's claim is not known
    for stored_object in bound("x"):
        cluster.put_storage(stored_object)
    assert refusal(cluster, wanting).reasons == ((REASON, 1),)
    cluster.put_storage(limited(2))
    assert schedule(cluster.fork(), wanting) == ("n", ())
    for stored_object in bound("z"):
        cluster.put_storage(stored_object)
    cluster.put_storage(attached("z"))
    assert refusal(cluster, wanting).reasons == ((REASON, 1),)
    cluster.remove_storage(attached("z"))
    assert schedule(cluster.fork(), wanting) == ("n", ())
    cluster.put_storage(attached("z"))
    cluster.remove_storage(bound("z")[1])
    assert schedule(cluster.fork(), wanting) == ("n", ())
    cluster.put_storage(limited(1))
    cluster.remove_storage(limited(1))
    assert schedule(cluster, wanting) == ("n", ())


@pytest.mark.parametrize("pod_first", [True, False])
def test_what_is_known_before_the_node(pod_first: bool) -> None:
    """Pods, claims, attachments and limits may be heard of before their node, in any order."""
    cluster = uses(Cluster(), "x") if pod_first else Cluster()
    for stored_object in (limited(1), *bound("x", "y")):
        cluster.put_storage(stored_object)
    if not pod_first:
        uses(cluster, "x")
    cluster.put_node(node("n"))
    assert refusal(cluster, pod(volume_claims=("y",))).reasons == ((REASON, 1),)


def test_a_volume_of_a_nominated_pod() -> None:
    """Room that is nominated for a pod of equal or higher priority is taken; its volumes are shared."""
    cluster = stored([node("n")], limited(1), *bound("x", "y"))
    cluster.nominate("n", Nomination(pod("coming", priority=5, volume_claims=("x",))))
    assert refusal(cluster, pod(priority=5, volume_claims=("y",))).reasons == ((REASON, 1),)
    assert schedule(cluster.fork(), pod(priority=5, volume_claims=("x",))) == ("n", ())
    assert schedule(cluster, pod(priority=6, volume_claims=("y",))) == ("n", ())


def test_a_class_that_comes_last_counts_for_a_claim_whose_volume_is_unknown() -> None:
    """A claim that is bound to a volume which cannot be read takes room as soon as its class is known."""
    cluster = stored([node("n")], limited(1), *bound("x"))
    cluster.remove_storage(MADE)
    cluster.put_storage(claim("unknown", bound_to="pv-unknown", class_name="gp3"))
    uses(cluster, "unknown")
    wanting = pod(volume_claims=("x",))
    assert schedule(cluster.fork(), wanting) == ("n", ())  # no driver is known for the other claim
    cluster.put_storage(MADE)
    assert refusal(cluster, wanting).reasons == ((REASON, 1),)
